"""Speculative decoding on the live model: drafts, the rule that accepts them, and the experiment that measures both."""
