"""Figures: records in, plotly specifications out; no streamlit, no torch."""
