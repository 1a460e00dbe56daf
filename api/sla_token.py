"""SLA tokens: the policy engine signs what the bearer is entitled to, the runtime in the pod checks it.

A token is a JWT (RFC 7519) in the compact form, signed by EdDSA (Ed25519) or ES256, and nothing else: the
algorithm is compared with that of the key before the key is used. It holds for one pod, one audience, and
15 minutes at most. https://www.rfc-editor.org/rfc/rfc8725 says why.
"""

import json
import logging
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.scheduling_context import PRIORITY_RANGE, WEIGHT_RANGE, QosClass, SlaClaims, SlaRefusal
from mcp2026.api.serving import check_range

log = logging.getLogger(__name__)

ISSUER: Final = "mcp2026-policy-engine"
MAX_LIFETIME_SECONDS: Final = 900
LEEWAY_SECONDS: Final = 30
"""How far the clocks of issuer and verifier may differ."""
MAX_TOKEN_BYTES: Final = 4_096
MAX_KEYS: Final = 64
"""Of one set; more are not looked at."""
POD_UID_CLAIM: Final = "pod_uid"
SLA_CLAIM: Final = "sla"
_MAX_KID: Final = 128
_NAME: Final = re.compile(r"[!-~]{0,63}")

Algorithm = Literal["EdDSA", "ES256"]
PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey = Ed25519PublicKey | EllipticCurvePublicKey


class SlaTokenRefusedError(Exception):
    """A token is not taken."""

    def __init__(self, reason: SlaRefusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        """One sentence without anything from the token that is secret."""


@dataclass(frozen=True)
class SlaKey:
    """A key that verifies tokens of exactly one algorithm."""

    key_id: str
    algorithm: Algorithm
    public: PublicKey


KeySet = Mapping[str, SlaKey]
"""Keys by their ids."""


@dataclass(frozen=True)
class SigningKey:
    """A key that issues tokens."""

    key_id: str
    algorithm: Algorithm
    private: PrivateKey

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half, as a member of a JWKS."""
        public = self.private.public_key()
        if isinstance(public, Ed25519PublicKey):
            members = OKPAlgorithm.to_jwk(public, as_dict=True)
        else:
            members = ECAlgorithm.to_jwk(public, as_dict=True)
        return {**members, "kid": self.key_id, "use": "sig", "alg": self.algorithm}


@dataclass(frozen=True)
class VerifiedToken:
    """What a token says, and until when."""

    claims: SlaClaims
    expires: float
    """Seconds since the epoch, with the leeway."""


_JWS: Final = jwt.PyJWS(["EdDSA", "ES256"])

# --- keys


def generate_signing_key(key_id: str, algorithm: Algorithm = "EdDSA") -> SigningKey:
    """Return a new key."""
    private = Ed25519PrivateKey.generate() if algorithm == "EdDSA" else generate_private_key(SECP256R1())
    return SigningKey(key_id, algorithm, private)


def encode_key_set(*keys: SigningKey) -> bytes:
    """Return the JWKS (RFC 7517) that verifies what `keys` sign."""
    return json.dumps({"keys": [key.jwk for key in keys]}).encode()


def parse_key_set(document: bytes) -> dict[str, SlaKey]:
    """Return the keys of a JWKS that can verify SLA tokens.

    A key for something else, or one that cannot be used, is left out with a warning: a set may also serve
    others. Of keys with one id the first counts.

    Raises:
        InvalidResourceError: the document is no JWKS.

    """
    try:
        decoded = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise InvalidResourceError("key set", "is not JSON", "a JWKS (RFC 7517)") from error
    listed = decoded.get("keys") if isinstance(decoded, dict) else None
    if not isinstance(listed, list):
        raise InvalidResourceError("key set", "has no list `keys`", "a JWKS (RFC 7517)")
    if len(listed) > MAX_KEYS:
        log.warning("the key set has %d keys; only the first %d are used", len(listed), MAX_KEYS)
    keys: dict[str, SlaKey] = {}
    for position, jwk in enumerate(listed[:MAX_KEYS]):
        try:
            key = _parse_key(jwk)
        except _UnfitKeyError as error:
            log.warning("key %d of the key set is left out: %s", position, error)
            continue
        if key.key_id in keys:
            log.warning("key %d of the key set is left out: its kid is that of one before it", position)
        else:
            keys[key.key_id] = key
    return keys


class _UnfitKeyError(Exception):
    """A key of a set is not for SLA tokens."""


def _parse_key(jwk: object) -> SlaKey:
    if not isinstance(jwk, dict):
        raise _UnfitKeyError("it is no object")
    key_id = jwk.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= _MAX_KID:
        raise _UnfitKeyError(f"it has no kid of 1 to {_MAX_KID} characters")
    if "d" in jwk:
        raise _UnfitKeyError("it is a private key, which belongs to the issuer alone")
    if jwk.get("use", "sig") != "sig":
        raise _UnfitKeyError("its use is not sig")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _UnfitKeyError("its key_ops lack verify")
    algorithm = _ALGORITHM_OF.get((str(jwk.get("kty")), str(jwk.get("crv"))))
    if algorithm is None:
        raise _UnfitKeyError("its kind is neither OKP Ed25519 nor EC P-256")
    if jwk.get("alg", algorithm) != algorithm:
        raise _UnfitKeyError(f"its alg is not {algorithm}")
    try:
        public = OKPAlgorithm.from_jwk(jwk) if algorithm == "EdDSA" else ECAlgorithm.from_jwk(jwk)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise _UnfitKeyError("its numbers are no key") from error
    if not isinstance(public, Ed25519PublicKey | EllipticCurvePublicKey):
        raise _UnfitKeyError("it is no public key")
    return SlaKey(key_id, algorithm, public)


_ALGORITHM_OF: Final[dict[tuple[str, str], Algorithm]] = {
    ("OKP", "Ed25519"): "EdDSA",
    ("EC", "P-256"): "ES256",
}

# --- the issuer


def issue_sla_token(
    key: SigningKey,
    claims: SlaClaims,
    *,
    audience: str,
    pod_uid: str,
    now: float,
    lifetime: float = MAX_LIFETIME_SECONDS,
    issuer: str = ISSUER,
) -> str:
    """Return a token with `claims` for one pod, from `now` (seconds since the epoch) for `lifetime` seconds.

    Raises:
        InvalidResourceError: a claim or the lifetime is out of its range.

    """
    check_range("priority", claims.priority, PRIORITY_RANGE)
    check_range("weight", claims.weight, WEIGHT_RANGE)
    check_range("lifetime", lifetime, (1, MAX_LIFETIME_SECONDS))
    for field, name in (("tenant", claims.tenant), ("profile", claims.profile)):
        if not _NAME.fullmatch(name):
            raise InvalidResourceError(field, f"{name!r} is not allowed", "up to 63 visible ASCII characters")
    issued = math.floor(now)
    payload = {
        "iss": issuer,
        "aud": audience,
        "iat": issued,
        "nbf": issued,
        "exp": issued + math.floor(lifetime),
        "jti": str(uuid.uuid4()),
        POD_UID_CLAIM: pod_uid,
        SLA_CLAIM: {
            "class": claims.qos_class.value,
            "priority": claims.priority,
            "weight": claims.weight,
            "tenant": claims.tenant,
            "profile": claims.profile,
        },
    }
    return jwt.encode(payload, key.private, key.algorithm, {"kid": key.key_id})


# --- the verifier


def verify_sla_token(
    token: bytes,
    keys: KeySet,
    *,
    audience: str,
    pod_uid: str,
    now: float,
    issuer: str = ISSUER,
) -> VerifiedToken:
    """Return what `token` says at `now`, in seconds since the epoch.

    Raises:
        SlaTokenRefusedError: it is not a token of `issuer` for this audience and pod that holds now.

    """
    payload = _verified_payload(token, keys)
    expires = _check_times(payload, now)
    if payload.get("iss") != issuer:
        raise _refused(SlaRefusal.BAD_CLAIMS, "iss is not the policy engine")
    named = payload.get("aud")
    if audience not in (named if isinstance(named, list) else [named]):
        raise _refused(SlaRefusal.WRONG_AUDIENCE, "it is for another audience")
    if payload.get(POD_UID_CLAIM) != pod_uid:
        raise _refused(SlaRefusal.WRONG_POD, "it is for another pod")
    return VerifiedToken(_claims(payload.get(SLA_CLAIM)), expires)


def _refused(reason: SlaRefusal, detail: str) -> SlaTokenRefusedError:
    return SlaTokenRefusedError(reason, detail)


def _verified_payload(token: bytes, keys: KeySet) -> dict[str, Any]:
    if not token:
        raise _refused(SlaRefusal.MISSING, "there is no token")
    if len(token) > MAX_TOKEN_BYTES:
        raise _refused(SlaRefusal.MALFORMED, f"it is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError) as error:
        raise _refused(SlaRefusal.MALFORMED, "it is no signed JWT") from error
    if "crit" in header or "b64" in header:
        raise _refused(SlaRefusal.MALFORMED, "it asks for extensions that nothing here knows")
    algorithm = header.get("alg")
    if algorithm not in _ALGORITHM_OF.values():
        raise _refused(SlaRefusal.UNSUPPORTED_ALGORITHM, "alg is neither EdDSA nor ES256")
    key_id = header.get("kid")
    if not isinstance(key_id, str):
        raise _refused(SlaRefusal.MALFORMED, "it names no key (kid)")
    key = keys.get(key_id)
    if key is None:
        raise _refused(SlaRefusal.UNKNOWN_KEY, "its kid is not in the key set")
    if key.algorithm != algorithm:
        raise _refused(SlaRefusal.UNSUPPORTED_ALGORITHM, f"its key is for {key.algorithm} alone")
    try:
        content = _JWS.decode(token, key.public, [key.algorithm])
    except jwt.InvalidSignatureError as error:
        raise _refused(SlaRefusal.BAD_SIGNATURE, "its signature does not fit") from error
    except (jwt.PyJWTError, ValueError) as error:
        raise _refused(SlaRefusal.MALFORMED, "it is no signed JWT") from error
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refused(SlaRefusal.MALFORMED, "its payload is not JSON") from error
    if not isinstance(payload, dict):
        raise _refused(SlaRefusal.MALFORMED, "its payload is no object")
    return payload


def _check_times(payload: Mapping[str, Any], now: float) -> float:
    """Return until when a token holds."""
    issued = _time(payload, "iat")
    expires = _time(payload, "exp")
    begins = _time(payload, "nbf") if "nbf" in payload else issued
    if expires - issued > MAX_LIFETIME_SECONDS:
        raise _refused(SlaRefusal.TOO_LONG_LIVED, f"it lives longer than {MAX_LIFETIME_SECONDS} s")
    if now >= expires + LEEWAY_SECONDS:
        raise _refused(SlaRefusal.EXPIRED, "its time is over")
    if now < max(issued, begins) - LEEWAY_SECONDS:
        raise _refused(SlaRefusal.NOT_YET_VALID, "its time has not come")
    return expires + LEEWAY_SECONDS


def _time(payload: Mapping[str, Any], name: str) -> float:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise _refused(SlaRefusal.BAD_CLAIMS, f"{name} is no time")
    return value


def _claims(sla: object) -> SlaClaims:
    if not isinstance(sla, dict):
        raise _refused(SlaRefusal.BAD_CLAIMS, "it has no claims about an SLA")
    try:
        qos_class = QosClass(str(sla.get("class")))
    except ValueError as error:
        raise _refused(SlaRefusal.BAD_CLAIMS, "class is no QoS class") from error
    return SlaClaims(
        qos_class,
        _number(sla, "priority", PRIORITY_RANGE),
        _number(sla, "weight", WEIGHT_RANGE),
        _text(sla, "tenant"),
        _text(sla, "profile"),
    )


def _number(sla: Mapping[str, Any], name: str, allowed: tuple[int, int]) -> int:
    value = sla.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not allowed[0] <= value <= allowed[1]:
        raise _refused(SlaRefusal.BAD_CLAIMS, f"{name} is no whole number from {allowed[0]} to {allowed[1]}")
    return value


def _text(sla: Mapping[str, Any], name: str) -> str:
    value = sla.get(name, "")
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _refused(SlaRefusal.BAD_CLAIMS, f"{name} is no name")
    return value
