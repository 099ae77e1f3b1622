"""What happens when: prefill, decode, the record of every step."""
