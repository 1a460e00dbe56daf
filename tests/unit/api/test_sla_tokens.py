"""Who gets past the check of an SLA token: only what the policy engine signed for this pod, for now."""

import base64
import contextlib
import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.scheduling_context import QosClass, SlaClaims, SlaRefusal
from mcp2026.api.sla_token import (
    ISSUER,
    Algorithm,
    SigningKey,
    SlaTokenRefusedError,
    VerifiedToken,
    encode_key_set,
    generate_signing_key,
    issue_sla_token,
    parse_key_set,
    verify_sla_token,
)

NOW = 1_800_000_000.0
POD = "6f1d2c3e-0000-4000-8000-000000000001"
GOLD = SlaClaims(QosClass.GUARANTEED, 1, 5, "acme", "gold")
EDWARDS = generate_signing_key("ed-1")
ELLIPTIC = generate_signing_key("ec-1", "ES256")
KEYS = parse_key_set(encode_key_set(EDWARDS, ELLIPTIC))
PAYLOAD: dict[str, Any] = {
    "iss": ISSUER,
    "aud": "runtime",
    "iat": int(NOW),
    "exp": int(NOW) + 600,
    "pod_uid": POD,
    "sla": {"class": "Burstable", "priority": 2, "weight": 3, "tenant": "acme", "profile": "silver"},
}


def verify(token: str | bytes, now: float = NOW, keys: Any = KEYS) -> VerifiedToken:
    content = token.encode() if isinstance(token, str) else token
    return verify_sla_token(content, keys, audience="runtime", pod_uid=POD, now=now)


def refusal(token: str | bytes, now: float = NOW, keys: Any = KEYS) -> SlaRefusal:
    with pytest.raises(SlaTokenRefusedError) as refused:
        verify(token, now, keys)
    return refused.value.reason


def signed(payload: Any, header: dict[str, Any] | None = None, key: SigningKey = EDWARDS) -> str:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return jwt.PyJWS().encode(content, key.private, key.algorithm, {"kid": key.key_id, **(header or {})})


def encoded(part: Any) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (PAYLOAD | changes).items() if value is not None}


def with_sla(**changes: Any) -> dict[str, Any]:
    return changed(sla=PAYLOAD["sla"] | changes)


@pytest.mark.parametrize("key", [EDWARDS, ELLIPTIC], ids=["EdDSA", "ES256"])
def test_what_is_issued_verifies_and_says_what_it_was_given(key: SigningKey) -> None:
    token = issue_sla_token(key, GOLD, audience="runtime", pod_uid=POD, now=NOW)
    assert verify(token) == VerifiedToken(GOLD, NOW + 900 + 30)
    assert verify(token, NOW - 29).claims == verify(token, NOW + 929).claims == GOLD


def test_one_of_several_audiences_is_enough() -> None:
    assert verify(signed(changed(aud=["other", "runtime"]))).claims.tenant == "acme"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(changed(exp=int(NOW) - 31), SlaRefusal.EXPIRED, id="over for longer than the leeway"),
        pytest.param(changed(iat=int(NOW) + 31), SlaRefusal.NOT_YET_VALID, id="issued in the future"),
        pytest.param(changed(nbf=int(NOW) + 31), SlaRefusal.NOT_YET_VALID, id="not before later"),
        pytest.param(changed(exp=int(NOW) + 901), SlaRefusal.TOO_LONG_LIVED, id="15 minutes and a second"),
        pytest.param(changed(iat=0), SlaRefusal.TOO_LONG_LIVED, id="issued long ago, for long"),
        pytest.param(changed(exp=None), SlaRefusal.BAD_CLAIMS, id="no end"),
        pytest.param(changed(iat=None), SlaRefusal.BAD_CLAIMS, id="no beginning"),
        pytest.param(changed(exp="soon"), SlaRefusal.BAD_CLAIMS, id="an end that is no number"),
        pytest.param(changed(exp=True), SlaRefusal.BAD_CLAIMS, id="an end that is a truth"),
        pytest.param(changed(exp=float("nan")), SlaRefusal.BAD_CLAIMS, id="an end that is NaN"),
        pytest.param(changed(exp=float("inf")), SlaRefusal.BAD_CLAIMS, id="an end at infinity"),
        pytest.param(changed(nbf=[1]), SlaRefusal.BAD_CLAIMS, id="a list as nbf"),
        pytest.param(changed(iss="somebody"), SlaRefusal.BAD_CLAIMS, id="another issuer"),
        pytest.param(changed(iss=None), SlaRefusal.BAD_CLAIMS, id="no issuer"),
        pytest.param(changed(aud="other"), SlaRefusal.WRONG_AUDIENCE, id="another audience"),
        pytest.param(changed(aud=["other"]), SlaRefusal.WRONG_AUDIENCE, id="other audiences"),
        pytest.param(changed(aud={"runtime": 1}), SlaRefusal.WRONG_AUDIENCE, id="an object as audience"),
        pytest.param(changed(aud=None), SlaRefusal.WRONG_AUDIENCE, id="no audience"),
        pytest.param(changed(pod_uid="another"), SlaRefusal.WRONG_POD, id="another pod"),
        pytest.param(changed(pod_uid=None), SlaRefusal.WRONG_POD, id="no pod"),
        pytest.param(changed(pod_uid=[POD]), SlaRefusal.WRONG_POD, id="a list of pods"),
        pytest.param(changed(sla=None), SlaRefusal.BAD_CLAIMS, id="no claims"),
        pytest.param(changed(sla=[]), SlaRefusal.BAD_CLAIMS, id="a list of claims"),
        pytest.param(with_sla(**{"class": "Best"}), SlaRefusal.BAD_CLAIMS, id="no class"),
        pytest.param(with_sla(**{"class": ["Burstable"]}), SlaRefusal.BAD_CLAIMS, id="a list of classes"),
        pytest.param(with_sla(priority=0), SlaRefusal.BAD_CLAIMS, id="priority 0"),
        pytest.param(with_sla(priority=101), SlaRefusal.BAD_CLAIMS, id="priority 101"),
        pytest.param(with_sla(priority=1.0), SlaRefusal.BAD_CLAIMS, id="a fraction as priority"),
        pytest.param(with_sla(priority=True), SlaRefusal.BAD_CLAIMS, id="a truth as priority"),
        pytest.param(with_sla(weight=0), SlaRefusal.BAD_CLAIMS, id="weight 0"),
        pytest.param(with_sla(weight=1001), SlaRefusal.BAD_CLAIMS, id="weight 1001"),
        pytest.param(with_sla(weight="5"), SlaRefusal.BAD_CLAIMS, id="a text as weight"),
        pytest.param(with_sla(tenant="t" * 64), SlaRefusal.BAD_CLAIMS, id="a long tenant"),
        pytest.param(with_sla(tenant="a b"), SlaRefusal.BAD_CLAIMS, id="a tenant with a space"),
        pytest.param(with_sla(profile=3), SlaRefusal.BAD_CLAIMS, id="a number as profile"),
        pytest.param([1], SlaRefusal.MALFORMED, id="a list as payload"),
        pytest.param(b"not json", SlaRefusal.MALFORMED, id="no JSON"),
        pytest.param(b"[" * 2_900, SlaRefusal.MALFORMED, id="nested too deeply"),
    ],
)
def test_a_signed_token_with_wrong_claims_is_refused(payload: Any, reason: SlaRefusal) -> None:
    assert refusal(signed(payload)) is reason


def _with_hmac_of_the_public_key() -> str:
    secret = EDWARDS.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = encoded({"alg": "HS256", "kid": "ed-1"}) + "." + encoded(PAYLOAD)
    return text + "." + encoded(hmac.new(secret, text.encode(), hashlib.sha256).digest())


def _signed_by_rsa() -> str:
    private = rsa.generate_private_key(65_537, 2_048)
    return jwt.encode(PAYLOAD, private, "RS256", {"kid": "ed-1"})


def _signed_by(private: Any, algorithm: str, **header: Any) -> str:
    return jwt.encode(PAYLOAD, private, algorithm, header)


def _another_payload_under_a_good_signature() -> str:
    head, _, signature = signed(PAYLOAD).split(".")
    return ".".join([head, encoded(with_sla(priority=1)), signature])


def _signature_of_es256_with(r: int, s: int) -> str:
    head = encoded({"alg": "ES256", "kid": "ec-1"})
    return f"{head}.{encoded(PAYLOAD)}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        pytest.param(lambda: "", SlaRefusal.MISSING, id="nothing"),
        pytest.param(
            lambda: encoded({"alg": "none", "kid": "ed-1"}) + "." + encoded(PAYLOAD) + ".",
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="alg none",
        ),
        pytest.param(
            lambda: encoded({"alg": "nOnE", "kid": "ed-1"}) + "." + encoded(PAYLOAD) + ".",
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="alg none, spelt otherwise",
        ),
        pytest.param(
            _with_hmac_of_the_public_key,
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="HMAC with the public key as secret",
        ),
        pytest.param(_signed_by_rsa, SlaRefusal.UNSUPPORTED_ALGORITHM, id="RS256"),
        pytest.param(
            lambda: _signed_by(ec.generate_private_key(ec.SECP384R1()), "ES384", kid="ec-1"),
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="ES384",
        ),
        pytest.param(
            lambda: _signed_by(ELLIPTIC.private, "ES256", kid="ed-1"),
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="the algorithm of one key under the id of another",
        ),
        pytest.param(
            lambda: encoded({"alg": ["EdDSA"], "kid": "ed-1"}) + "." + encoded(PAYLOAD) + ".AA",
            SlaRefusal.UNSUPPORTED_ALGORITHM,
            id="a list of algorithms",
        ),
        pytest.param(
            lambda: _signed_by(Ed25519PrivateKey.generate(), "EdDSA", kid="ed-1"),
            SlaRefusal.BAD_SIGNATURE,
            id="another key under a known id",
        ),
        pytest.param(_another_payload_under_a_good_signature, SlaRefusal.BAD_SIGNATURE, id="payload changed"),
        pytest.param(lambda: _signature_of_es256_with(0, 0), SlaRefusal.BAD_SIGNATURE, id="r = s = 0"),
        pytest.param(
            lambda: signed(PAYLOAD).rsplit(".", 1)[0] + ".", SlaRefusal.BAD_SIGNATURE, id="no signature"
        ),
        pytest.param(
            lambda: _signed_by(EDWARDS.private, "EdDSA", kid="gone"), SlaRefusal.UNKNOWN_KEY, id="unknown kid"
        ),
        pytest.param(
            lambda: _signed_by(EDWARDS.private, "EdDSA", kid="../../etc/passwd"),
            SlaRefusal.UNKNOWN_KEY,
            id="a path as kid",
        ),
        pytest.param(
            lambda: _signed_by(EDWARDS.private, "EdDSA", kid="x' OR '1'='1"),
            SlaRefusal.UNKNOWN_KEY,
            id="a query as kid",
        ),
        pytest.param(
            lambda: _signed_by(EDWARDS.private, "EdDSA", kid="http://evil/keys", jku="http://evil/keys"),
            SlaRefusal.UNKNOWN_KEY,
            id="a key set of its own",
        ),
        pytest.param(
            lambda: _signed_by(EDWARDS.private, "EdDSA", kid="mine", jwk=EDWARDS.jwk),
            SlaRefusal.UNKNOWN_KEY,
            id="a key of its own in the header",
        ),
        pytest.param(lambda: _signed_by(EDWARDS.private, "EdDSA"), SlaRefusal.MALFORMED, id="no kid"),
        pytest.param(
            lambda: encoded({"alg": "EdDSA", "kid": {"a": 1}}) + "." + encoded(PAYLOAD) + ".AA",
            SlaRefusal.MALFORMED,
            id="an object as kid",
        ),
        pytest.param(
            lambda: (
                encoded({"alg": "EdDSA", "kid": "ed-1", "crit": ["exp"]}) + "." + encoded(PAYLOAD) + ".AA"
            ),
            SlaRefusal.MALFORMED,
            id="a critical extension",
        ),
        pytest.param(
            lambda: encoded({"alg": "EdDSA", "kid": "ed-1", "b64": False, "crit": ["b64"]}) + "..AA",
            SlaRefusal.MALFORMED,
            id="a detached payload",
        ),
        pytest.param(lambda: signed(PAYLOAD) + ".x", SlaRefusal.MALFORMED, id="four parts"),
        pytest.param(lambda: signed(PAYLOAD)[:-2] + "%%", SlaRefusal.MALFORMED, id="no base64"),
        pytest.param(lambda: "a.b", SlaRefusal.MALFORMED, id="two parts"),
        pytest.param(lambda: encoded(b"[" * 2_900) + ".e30.AA", SlaRefusal.MALFORMED, id="a deep header"),
        pytest.param(
            lambda: signed(PAYLOAD | {"more": "x" * 4_096}), SlaRefusal.MALFORMED, id="longer than 4096 bytes"
        ),
    ],
)
def test_a_forged_token_is_refused(forge: Callable[[], str], reason: SlaRefusal) -> None:
    assert refusal(forge()) is reason


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_a_reason(token: bytes) -> None:
    assert refusal(token) in (SlaRefusal.MISSING, SlaRefusal.MALFORMED, SlaRefusal.UNSUPPORTED_ALGORITHM)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]), JSON))
def test_any_header_and_payload_are_refused_with_a_reason(payload: Any, header: dict[str, Any]) -> None:
    assert isinstance(refusal(f"{encoded(header)}.{encoded(payload)}.AAAA"), SlaRefusal)


@given(st.dictionaries(st.sampled_from([*PAYLOAD, "nbf", "jti"]), JSON, min_size=1))
def test_any_signed_claims_are_taken_or_refused_with_a_reason(changes: dict[str, Any]) -> None:
    with contextlib.suppress(SlaTokenRefusedError):
        assert verify(signed(PAYLOAD | changes)).claims.priority in range(1, 101)


# --- key sets


def test_keys_rotate_new_ones_are_taken_beside_old_ones_until_these_are_removed() -> None:
    new = generate_signing_key("ed-2")
    old_token, new_token = signed(PAYLOAD), signed(PAYLOAD, key=new)
    both, only_new = (parse_key_set(encode_key_set(*keys)) for keys in ((EDWARDS, new), (new,)))
    assert refusal(new_token) is SlaRefusal.UNKNOWN_KEY
    assert verify(old_token, keys=both) == verify(new_token, keys=both)
    assert refusal(old_token, keys=only_new) is SlaRefusal.UNKNOWN_KEY
    assert verify(new_token, keys=only_new)


def _wide_curve() -> dict[str, Any]:
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    return {**ECAlgorithm.to_jwk(public, as_dict=True), "kid": "k"}


@pytest.mark.parametrize(
    ("jwk", "said"),
    [
        pytest.param("key", "it is no object", id="a text"),
        pytest.param({**EDWARDS.jwk, "kid": ""}, "it has no kid", id="an empty kid"),
        pytest.param({**EDWARDS.jwk, "kid": 7}, "it has no kid", id="a number as kid"),
        pytest.param({**EDWARDS.jwk, "use": "enc"}, "its use is not sig", id="a key that encrypts"),
        pytest.param({**EDWARDS.jwk, "key_ops": ["sign"]}, "its key_ops lack verify", id="a key that signs"),
        pytest.param({**EDWARDS.jwk, "alg": "ES256"}, "its alg is not EdDSA", id="another alg"),
        pytest.param({**EDWARDS.jwk, "alg": "HS256"}, "its alg is not EdDSA", id="alg HS256"),
        pytest.param({**EDWARDS.jwk, "d": "AA"}, "it is a private key", id="a private key"),
        pytest.param({"kty": "oct", "k": "AA", "kid": "k"}, "its kind is neither", id="a secret"),
        pytest.param({"kty": "RSA", "n": "AA", "e": "AQAB", "kid": "k"}, "its kind is neither", id="RSA"),
        pytest.param(_wide_curve(), "its kind is neither", id="the curve P-384"),
        pytest.param({**EDWARDS.jwk, "crv": "Ed448"}, "its kind is neither", id="the curve Ed448"),
        pytest.param({**EDWARDS.jwk, "x": "AA"}, "its numbers are no key", id="a short key"),
        pytest.param({**EDWARDS.jwk, "x": 5}, "its numbers are no key", id="a number as key"),
        pytest.param({**ELLIPTIC.jwk, "y": ELLIPTIC.jwk["x"]}, "its numbers are no key", id="off the curve"),
        pytest.param({**ELLIPTIC.jwk, "kid": "ed-1"}, "its kid is that of one before", id="a kid twice"),
    ],
)
def test_a_key_that_does_not_fit_is_left_out_with_a_warning(
    jwk: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        keys = parse_key_set(json.dumps({"keys": [EDWARDS.jwk, jwk]}).encode())
    assert list(keys) == ["ed-1"]
    assert said in caplog.text


def test_a_key_without_use_and_alg_gets_those_of_its_kind() -> None:
    bare = {name: value for name, value in ELLIPTIC.jwk.items() if name not in ("use", "alg")}
    assert parse_key_set(json.dumps({"keys": [bare]}).encode())["ec-1"].algorithm == "ES256"


def test_no_more_keys_are_looked_at_than_a_set_may_have(caplog: pytest.LogCaptureFixture) -> None:
    many = [{**EDWARDS.jwk, "kid": str(number)} for number in range(65)]
    assert len(parse_key_set(json.dumps({"keys": many}).encode())) == 64
    assert "only the first 64 are used" in caplog.text


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": {}}', b"\xff", b"[" * 100_000])
def test_what_is_no_key_set_is_named(document: bytes) -> None:
    with pytest.raises(InvalidResourceError, match="key set"):
        parse_key_set(document)


@given(JSON)
def test_any_keys_are_read_or_left_out(jwk: Any) -> None:
    assert parse_key_set(json.dumps({"keys": [jwk]}).encode()) == {}


# --- the issuer


@pytest.mark.parametrize(
    ("claims", "lifetime", "field"),
    [
        (SlaClaims(QosClass.BURSTABLE, 0, 1, "t", "p"), 60, "priority"),
        (SlaClaims(QosClass.BURSTABLE, 101, 1, "t", "p"), 60, "priority"),
        (SlaClaims(QosClass.BURSTABLE, 1, 1_001, "t", "p"), 60, "weight"),
        (SlaClaims(QosClass.BURSTABLE, 1, 1, "a b", "p"), 60, "tenant"),
        (SlaClaims(QosClass.BURSTABLE, 1, 1, "t", "ö"), 60, "profile"),
        (GOLD, 901, "lifetime"),
        (GOLD, 0, "lifetime"),
    ],
)
def test_no_token_is_issued_that_would_be_refused(claims: SlaClaims, lifetime: float, field: str) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        issue_sla_token(EDWARDS, claims, audience="a", pod_uid=POD, now=NOW, lifetime=lifetime)
    assert refused.value.field == field


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
def test_a_published_key_has_no_private_part(algorithm: Algorithm) -> None:
    jwk = generate_signing_key("k", algorithm).jwk
    assert "d" not in jwk
    assert (jwk["kid"], jwk["use"], jwk["alg"]) == ("k", "sig", algorithm)
