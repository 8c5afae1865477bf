"""Choosing how the model is reached: straight over HTTP where it speaks OpenAI's protocol, else through litellm."""
