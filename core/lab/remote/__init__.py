"""The sweep against a server that speaks OpenAI's protocol: what one machine cannot hold, measured from outside."""
