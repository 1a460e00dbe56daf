"""What one HTTP/2 connection may hold and cost."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Limits of HTTP/2 alone, in bytes if not said otherwise; those of all versions: `ConnectionLimits`."""

    max_streams: int = 256
    """Requests of one connection at a time; a client keeps the others back by itself."""
    max_streams_of_a_turn: int = 32
    """Requests that are begun before other connections have their turn."""
    max_frame_bytes: int = 16 * KIB
    """Largest frame that a client may send."""
    max_header_bytes: int = 64 * KIB
    """Largest header block, and largest header list as RFC 9113 §6.5.2 counts it."""
    max_headers: int = 128
    max_continuations: int = 32
    """CONTINUATION frames of one header block."""
    stream_window_bytes: int = 1 * MIB
    """What a client may send of a body before it hears from the server."""
    max_stream_window_bytes: int = 8 * MIB
    """To which the window of a stream grows while its body keeps coming."""
    connection_window_bytes: int = 16 * MIB
    held_bytes: int = 64 * MIB
    """Unfinished bodies of one connection together. Beyond, only the oldest gets more window."""
    unsent_bytes: int = 64 * MIB
    """What a streaming answer may be ahead of its reader; then the stream is reset."""
    resets: int = 1_000
    """Streams that a client may make the server begin and drop in one burst (CVE-2023-44487)."""
    resets_per_second: float = 33.0
    settings_frames: int = 100
    """SETTINGS frames in one burst: each is acknowledged, and may change what holds (CVE-2019-9515)."""
    settings_frames_per_second: float = 10.0
    idle_frames: int = 10_000
    """Frames that bring no work (PING, SETTINGS, PRIORITY, empty DATA, …) in one burst (CVE-2019-9512)."""
    idle_frames_per_second: float = 1_000.0
    idle_frames_per_work: int = 4
    """Idle frames that each request and each piece of a body allows besides."""
