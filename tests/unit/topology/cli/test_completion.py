"""What bash offers after a word, by the script that each program prints."""

import importlib
import subprocess

import pytest

PROGRAMS = {
    "coterie-topology": "topology.cli.commands",
    "coterie-extender": "extender.command_line",
    "coterie-plugin": "plugin.command_line",
}


@pytest.fixture
def offered(capsys, tmp_path):
    """Ask bash what it offers for the last of some words."""

    def ask(*words):
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(PROGRAMS[words[0]]).main(["--bash-completion"])
        assert not ended.value.code
        function = f"_{words[0].replace('-', '_')}"
        quoted = " ".join(f"'{word}'" for word in words)
        script = (
            f"{capsys.readouterr().out}\nCOMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n"
            f'{function}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["coterie-topology", "re"], ["recordings"]),
        (["coterie-topology", "--v"], ["--version"]),
        (["coterie-topology", "best", "--must"], ["--must-include"]),
        (["coterie-topology", "best", "--affinity", "n"], ["nvlink", "numa", "none"]),
        (["coterie-topology", "best", "--size", "2", "dgx-1-p"], ["dgx-1-p100"]),
        (["coterie-topology", "show", "my-f"], ["my-file"]),
        (["coterie-topology", "show", "--measured", "my-f"], ["my-file"]),
        (["coterie-topology", "best", "--size", ""], []),
        (["coterie-extender", "rep"], ["replay"]),
        (["coterie-extender", "replay", "my-f"], ["my-file"]),
        (["coterie-plugin", "run", "--mig-strategy", "s"], ["single"]),
        (["coterie-plugin", "discover", "--js"], ["--json"]),
    ],
)
def test_bash_completes(offered, tmp_path, words, expected):
    """Commands, options, choices, files and shipped machines, for each program."""
    (tmp_path / "my-file").touch()
    assert offered(*words) == expected
