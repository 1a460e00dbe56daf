"""What the command line may say."""

from pathlib import Path

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import EXTENDER_PORT
from mcp2026.scheduler_extender.settings import Settings, TlsFiles, read_settings


def test_without_flags_the_verbs_are_on_loopback_and_nothing_is_served_to_others() -> None:
    settings = read_settings([], {})
    assert settings == Settings(host="127.0.0.1", port=EXTENDER_PORT, metrics_port=None, kubeconfig=None)


def test_flags_are_taken(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    flags = ["--host", "::1", "--port", "9000", "--metrics-host", "127.0.0.1", "--metrics-port", "9001"]
    settings = read_settings([*flags, "--kubeconfig", str(kubeconfig), "--log-format", "json"], {})
    assert settings == Settings("::1", 9000, "127.0.0.1", 9001, kubeconfig, log_format="json")


def test_the_kubeconfig_of_the_environment_yields_to_the_flag(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.touch()
    theirs.touch()
    environment = {"KUBECONFIG": str(theirs)}
    assert read_settings([], environment).kubeconfig == theirs
    assert read_settings(["--kubeconfig", str(ours)], environment).kubeconfig == ours


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        pytest.param(["--host", "0.0.0.0"], "--host.*reachable by others.*127.0.0.1", id="every address"),
        pytest.param(["--host", "10.0.0.7"], "--host.*reachable by others", id="an address of the network"),
        pytest.param(["--host", "example"], "--host", id="a name that is not localhost"),
        pytest.param(["--port", "70000"], "--port.*0 to 65535", id="a port too high"),
        pytest.param(["--port", "-1"], "--port.*0 to 65535", id="a negative port"),
        pytest.param(
            ["--metrics-port", str(EXTENDER_PORT)], "--metrics-port.*another port", id="one port twice"
        ),
        pytest.param(["--port", "x"], "--port.*--help", id="a port that is no number"),
        pytest.param(
            ["--kubeconfig", "nowhere"], "--kubeconfig.*no file", id="a kubeconfig that is not there"
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_its_flag(flags: list[str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        read_settings(flags, {})


TLS = ("--tls-cert-file", "--tls-private-key-file", "--client-ca-file")


def test_with_certificates_of_clients_any_address_is_allowed(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    flags = [part for flag in TLS for part in (flag, str(pem))]
    settings = read_settings([*flags, "--host", "0.0.0.0"], {})
    assert settings.tls == TlsFiles(pem, pem, pem)


@pytest.mark.parametrize("missing", TLS)
def test_half_of_the_certificates_is_refused(tmp_path: Path, missing: str) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    flags = [part for flag in TLS if flag != missing for part in (flag, str(pem))]
    with pytest.raises(SettingsError, match=f"{missing}: is missing; allowed: all of"):
        read_settings(flags, {})


def test_a_certificate_that_is_not_there_is_named() -> None:
    flags = [part for flag in TLS for part in (flag, "nowhere")]
    with pytest.raises(SettingsError, match="--tls-cert-file: nowhere is no file"):
        read_settings(flags, {})
