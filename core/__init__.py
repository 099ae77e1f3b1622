"""Token by Token's engine room: everything that runs without a browser. Imports neither streamlit nor plotly."""

from __future__ import annotations

import os

# Before torch is imported, which reads it once: how long threads of its that wait for one another spin before they
# sleep. As they come they spin for milliseconds, on a core that the server's own loop or another program needs: with
# both cores taken, a prefill of 64 positions took 2,900 ms, with this 230; on an idle machine the two are alike.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
