"""What the token of a request is worth. A token that comes again costs one look-up."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from mcp2026.api.scheduling_context import SlaClaims, SlaRefusal
from mcp2026.api.sla_token import KeySet, SlaTokenRefusedError, VerifiedToken, verify_sla_token

MAX_REMEMBERED: Final = 1_024
"""Of verified tokens, and again of refused ones: a flood of the latter must not drive out the former."""


class Keys(Protocol):
    """Where the keys are."""

    @property
    def keys(self) -> KeySet:
        """The present set."""

    def wanted(self) -> None:
        """A token names a key that is not there."""


class TokenCheck:
    """Verifies tokens for one pod and audience."""

    def __init__(
        self,
        keys: Keys,
        audience: str,
        pod_uid: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._source = keys
        self._audience = audience
        self._pod_uid = pod_uid
        self._clock = clock
        self._keys = keys.keys
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        self._refused: OrderedDict[bytes, SlaRefusal] = OrderedDict()

    def check(self, token: bytes | None) -> SlaClaims | SlaRefusal:
        """Return the claims of `token`, or why it is not taken. Never raises."""
        if not token:
            return SlaRefusal.MISSING
        if self._source.keys is not self._keys:
            self._keys = self._source.keys
            self._verified.clear()
            self._refused.clear()
        known = self._verified.get(token)
        if known is not None:
            if self._clock() < known.expires:
                self._verified.move_to_end(token)
                return known.claims
            del self._verified[token]
            return self._refuse(token, SlaRefusal.EXPIRED)
        refusal = self._refused.get(token)
        if refusal is SlaRefusal.UNKNOWN_KEY:
            self._source.wanted()  # its key may have been published since
        return refusal or self._verify(token)

    def _verify(self, token: bytes) -> SlaClaims | SlaRefusal:
        try:
            verified = verify_sla_token(
                token, self._keys, audience=self._audience, pod_uid=self._pod_uid, now=self._clock()
            )
        except SlaTokenRefusedError as refused:
            if refused.reason is SlaRefusal.UNKNOWN_KEY:
                self._source.wanted()
            return self._refuse(token, refused.reason)
        self._verified[token] = verified
        if len(self._verified) > MAX_REMEMBERED:
            self._verified.popitem(last=False)
        return verified.claims

    def _refuse(self, token: bytes, reason: SlaRefusal) -> SlaRefusal:
        """Remember a refusal that stays: a token whose time has not come may be taken later."""
        if reason not in (SlaRefusal.NOT_YET_VALID, SlaRefusal.MALFORMED):
            self._refused[token] = reason
            if len(self._refused) > MAX_REMEMBERED:
                self._refused.popitem(last=False)
        return reason
