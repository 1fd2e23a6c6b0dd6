"""A real broker of its own that is reached by TLS only: with SCRAM on one listener, with a certificate on the other."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streams.broker import local_broker, server_config
from streams.broker.server_config import NodeIdentity
from streams.settings import Settings

USER, PASSWORD = "coordinator", "correct horse battery staple"

_LISTENERS = """
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FURTHER0:SASL_SSL,FURTHER1:SSL
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.further0.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.further0.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.further1.ssl.client.auth=required
"""


@dataclass(frozen=True)
class SecureBroker:
    """Where it is, and the files that a client needs."""

    scram_address: str
    certificate_address: str
    ca_file: Path
    certificate_file: Path
    key_file: Path


@contextmanager
def secure_broker(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[SecureBroker]:
    """Start it; stopped at the end."""
    authority = _Authority(folder)
    server, server_key = authority.issue("server")
    certificate, key = authority.issue("client")
    both = folder / "server-both.pem"
    both.write_bytes(server_key.read_bytes() + server.read_bytes())
    plain = server_config.write_properties

    def with_listeners(broker_folder: Path, identity: NodeIdentity) -> Path:
        file = plain(broker_folder, identity)
        with file.open("a") as properties:
            properties.write(_LISTENERS.format(server=both, ca=authority.file))
            # There is no proxy between: the listeners are advertised where they are.
            pairs = [("PLAINTEXT", identity.port), ("CONTROLLER", identity.controller_port)]
            pairs += [(f"FURTHER{number}", one.port) for number, one in enumerate(identity.further)]
            places = ",".join(f"{name}://{server_config.HOST}:{port}" for name, port in pairs)
            properties.write(f"advertised.listeners={places}\n")
        return file

    patch.setattr(local_broker, "write_properties", with_listeners)
    settings = Settings(broker_dir=folder / "broker")
    try:
        broker = local_broker.up(settings, further_listeners=2)
        _add_user(broker.address)
        scram, by_certificate = (f"{server_config.HOST}:{listener.port}" for listener in broker.further)
        yield SecureBroker(scram, by_certificate, authority.file, certificate, key)
    finally:
        local_broker.remove(settings)


def _add_user(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
    admin.alter_user_scram_credentials([change])[USER].result()


class _Authority:
    """A certificate authority; keys and certificates are PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.file = folder / "ca.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key, is_authority=True)))

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate for 127.0.0.1 and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, key_file = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        certificate.write_bytes(_pem(self._sign(subject, key, is_authority=False)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, key_file

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address(server_config.HOST))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
