# The targets; what each does is in tools/make.py.
#   make run      the app on http://localhost:8501   (PORT=8600, ADDRESS=127.0.0.1 to change that)
#   make test     linters, type checker, all tests
#   make bench    the benchmarks
#   make clean    removes .venv
PYTHON ?= python3

.PHONY: run test bench clean
# exec: a signal to make must reach the server, not a shell in between.
run test bench clean:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { echo "make $@: there is no $(PYTHON) here: install Python 3.11 or later, or name one, as in make $@ PYTHON=/path/to/python3." >&2; exit 2; }
	@exec "$(PYTHON)" tools/make.py $@
