"""TLS and SASL of Faust's consumer. Apart from the native client's, since Faust takes long to import."""

from __future__ import annotations

from typing import Any

from aiokafka.helpers import create_ssl_context
from faust.auth import Credentials, SASLCredentials, SSLCredentials

from streams.messaging.kafka_security import check_security, has_sasl, has_tls, secret
from streams.settings import Settings
from streams.user_errors import UserError


def faust_credentials(settings: Settings) -> Credentials | None:
    """What Faust's consumer takes; None for a connection in the clear. Raises `UserError` as `security_config`."""
    check_security(settings)
    context = _ssl_context(settings) if has_tls(settings) else None
    if has_sasl(settings):
        return SASLCredentials(
            username=settings.sasl_username,
            password=secret(settings.sasl_password),
            ssl_context=context,
            mechanism=settings.sasl_mechanism,
        )
    return SSLCredentials(context) if context is not None else None


def _ssl_context(settings: Settings) -> Any:
    try:
        return create_ssl_context(
            cafile=settings.ssl_ca_file,
            certfile=settings.ssl_certificate_file,
            keyfile=settings.ssl_key_file,
            password=secret(settings.ssl_key_password),
        )
    except OSError as error:
        raise UserError(
            f"The files for TLS cannot be used: {error}.",
            "they are PEM files: RUNLANE_SSL_CA_FILE, RUNLANE_SSL_CERTIFICATE_FILE, RUNLANE_SSL_KEY_FILE",
        ) from error
