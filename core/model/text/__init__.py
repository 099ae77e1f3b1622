"""How text becomes token ids and comes back: tokenizers, streams, chat templates."""
