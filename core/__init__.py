"""Token by Token's engine room: everything that runs without a browser. Imports neither streamlit nor plotly."""
