"""TLS and SASL of every Kafka client: what the settings ask for, as the native client wants it."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from streams.settings import Settings
from streams.user_errors import UserError

_CERTIFICATES = {
    "ssl.ca.location": "ssl_ca_file",
    "ssl.certificate.location": "ssl_certificate_file",
    "ssl.key.location": "ssl_key_file",
}
"""Option of the native client -> setting."""
_TLS = (*_CERTIFICATES.values(), "ssl_key_password")
_SASL = ("sasl_username", "sasl_password")
_SETTINGS = ("security_protocol", *_TLS, "sasl_mechanism", *_SASL)


def security_config(settings: Settings) -> dict[str, Any]:
    """Options of the native client; none for a connection in the clear.

    Raises `UserError` when the settings do not fit together.
    """
    check_security(settings)
    protocol = settings.security_protocol
    if protocol == "PLAINTEXT":
        return {}
    config: dict[str, Any] = {"security.protocol": protocol}
    if has_tls(settings):
        files = {option: getattr(settings, name) for option, name in _CERTIFICATES.items()}
        config |= {option: str(file) for option, file in files.items() if file is not None}
        if settings.ssl_key_password is not None:
            config["ssl.key.password"] = settings.ssl_key_password.get_secret_value()
    if has_sasl(settings):
        config["sasl.mechanisms"] = settings.sasl_mechanism
        config["sasl.username"] = settings.sasl_username
        config["sasl.password"] = secret(settings.sasl_password)
    return config


def security_environment(settings: Settings) -> dict[str, str]:
    """The variables by which a child process reaches the brokers in the same way."""
    given = {name: getattr(settings, name) for name in _SETTINGS if name in settings.model_fields_set}
    return {
        f"RUNLANE_{name.upper()}": value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in given.items()
        if value is not None
    }


def has_tls(settings: Settings) -> bool:
    """Whether connections are encrypted."""
    return settings.security_protocol in ("SSL", "SASL_SSL")


def has_sasl(settings: Settings) -> bool:
    """Whether clients name themselves by SASL."""
    return settings.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def secret(value: SecretStr | None) -> str | None:
    """A secret setting in the clear."""
    return None if value is None else value.get_secret_value()


def check_security(settings: Settings) -> None:
    """Refuse what a client would ignore or fail on later, with a message that says which setting is meant."""
    protocol = settings.security_protocol
    for names, used, others in (
        (_TLS, has_tls(settings), "SSL or SASL_SSL"),
        (_SASL, has_sasl(settings), "SASL_PLAINTEXT or SASL_SSL"),
    ):
        given = [name for name in names if getattr(settings, name) is not None]
        if given and not used:
            raise UserError(
                f"{_variables(given)} would not be used: the security protocol is {protocol}.",
                f"set RUNLANE_SECURITY_PROTOCOL to {others}, or unset what it does not use",
            )
    if protocol == "PLAINTEXT":
        return
    if not settings.brokers:
        raise UserError(
            f"The local broker is reached in the clear, but the security protocol is {protocol}.",
            "name the brokers with RUNLANE_BROKERS, or unset RUNLANE_SECURITY_PROTOCOL",
        )
    if (settings.ssl_certificate_file is None) != (settings.ssl_key_file is None):
        raise UserError(
            "A client certificate and its key are needed together.",
            "set both RUNLANE_SSL_CERTIFICATE_FILE and RUNLANE_SSL_KEY_FILE, or neither",
        )
    if has_sasl(settings):
        missing = [name for name in _SASL if getattr(settings, name) is None]
        if missing:
            raise UserError(f"With {protocol} a client has to name itself.", f"set {_variables(missing)}")


def _variables(names: list[str]) -> str:
    return " and ".join(f"RUNLANE_{name.upper()}" for name in names)
