"""Which variable holds the key of a model's provider, as litellm names it."""

PROVIDER_KEY_NAMES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gpt": "OPENAI_API_KEY",
    "o3": "OPENAI_API_KEY",
    "o4": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "xai": "XAI_API_KEY",
}


def provider_key_name(model: str) -> str | None:
    """The variable in which the provider of the model looks for its key; None for an unknown one."""
    start = model.lower().split("/", 1)[0]
    for prefix, name in PROVIDER_KEY_NAMES.items():
        if start == prefix or ("/" not in model and start.startswith(prefix)):
            return name
    return None
