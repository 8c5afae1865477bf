"""The settings of logs, traces, the audit log and health, and the secret that signs links."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from bots.settings.validation import NO_SECRET, WebUrl, lowercase, require_each, uppercase

LINK_SECRET_CHARACTERS_MIN = 32


def _check_length(secret: str) -> None:
    if len(secret) < LINK_SECRET_CHARACTERS_MIN:
        raise ValueError(
            f"it needs at least {LINK_SECRET_CHARACTERS_MIN} characters that no one can guess"
            " (`openssl rand -hex 32` makes some)"
        )


class ObservabilitySettings(BaseModel):
    """Part of `bots.settings.Settings`. OTEL_EXPORTER_OTLP_ENDPOINT also sets the endpoint."""

    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(uppercase)] = "INFO"
    log_format: Annotated[Literal["text", "json"], BeforeValidator(lowercase)] = "text"
    audit_days: int = Field(default=365, ge=0, le=36_500)
    retention_days: int = Field(default=0, ge=0, le=36_500)
    worker_http_port: int | None = Field(default=None, ge=0, le=65_535)
    otel_endpoint: WebUrl = ""
    link_secret: Annotated[SecretStr, require_each(_check_length)] = NO_SECRET
