"""Settings: a file, then the environment, then flags; what is wrong is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from astray.modelfile.pretrained import pretrained
from astray.settings import ASPECTS, NAMES, Settings, SettingsError, reference


def file_with(folder: Path, text: str) -> Path:
    path = folder / "astray.toml"
    path.write_text(text)
    return path


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path):
    file = file_with(tmp_path, "eps = -3\ngamma = 2.5\nseed = 1\nskip_bad = true\n")
    environ = {"ASTRAY_GAMMA": "1.25", "ASTRAY_SEED": "2", "PATH": "/bin"}
    settings = Settings.gather(file, environ, {"seed": 3, "eps": None})
    assert (settings.eps, settings.gamma, settings.seed, settings.skip_bad) == (-3.0, 1.25, 3, True)


def test_of_two_ways_to_decide_the_one_given_last_counts(tmp_path: Path):
    file = file_with(tmp_path, "eps = -3")
    assert Settings.gather(file).eps == -3.0
    settings = Settings.gather(file, {"ASTRAY_FALSE_ALARM_RATE": "0.05"})
    assert (settings.eps, settings.false_alarm_rate) == (None, 0.05)
    settings = Settings.gather(file, {"ASTRAY_FALSE_ALARM_RATE": "0.05"}, {"eps": -1.0})
    assert (settings.eps, settings.false_alarm_rate) == (-1.0, None)
    with pytest.raises(SettingsError, match="--eps and --false-alarm-rate: each decides by itself"):
        Settings.gather(flags={"eps": -1.0, "false_alarm_rate": 0.05})


def test_aspects_are_those_of_the_shipped_reward():
    assert pretrained().aspects == ASPECTS
    assert Settings.gather(environ={"ASTRAY_LOOK_FOR": "time, place"}).look_for == ("time", "place")


def test_without_anything_given_nothing_is_set():
    settings = Settings.gather()
    assert settings == Settings()
    assert settings.given(["eps", "gamma", "iterations"]) == {}


def test_the_environment_can_name_the_file_and_a_flag_another(tmp_path: Path):
    named, given = file_with(tmp_path, "eps = -4"), tmp_path / "other.toml"
    given.write_text("eps = -5")
    environ = {"ASTRAY_CONFIG": str(named)}
    assert Settings.gather(None, environ).eps == -4.0
    assert Settings.gather(given, environ).eps == -5.0


def test_lists_and_pairs_are_written_alike_in_toml_and_in_text(tmp_path: Path):
    file = file_with(tmp_path, 'users = ["000", "017"]\n[columns]\nlat = "Breite"\nlon = "Länge"\n')
    read = Settings.gather(file)
    said = Settings.gather(environ={"ASTRAY_USERS": "000, 017", "ASTRAY_COLUMNS": "lat=Breite,lon=Länge"})
    flagged = Settings.gather(flags={"users": "000,017", "columns": ["lat=Breite", "lon=Länge"]})
    assert read.users == said.users == flagged.users == ("000", "017")
    assert read.columns == said.columns == flagged.columns == {"lat": "Breite", "lon": "Länge"}


@pytest.mark.parametrize("word", ["1", "true", "Yes", "on"])
def test_truth_has_many_words(word: str):
    assert Settings.gather(environ={"ASTRAY_ROBUST": word}).robust is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epss = 1", "'epss'; did you mean eps?"),
        ("weather = 1", "'weather'; there are format"),
        ("eps = 'low'", "eps in .*: 'low' is not a number"),
        ("seed = 1.5", "seed in .*: 1.5 is not a whole number"),
        ("seed = true", "seed in .*: True is not a whole number"),
        ("seed = -1", "seed in .*: -1 cannot be used; give 0 or more"),
        ("eps = nan", "eps in .*: nan is not a number"),
        ("false_alarm_rate = 2.0", "give a share between 0 and 1"),
        ("look_for = ['weather']", "give some of place, route, manner, time"),
        ("look_for = []", "give some of place, route, manner, time"),
        ("preset = 'best'", "give one of default, kdd19"),
        ("format = 7", "format in .*: 7 is not a text"),
        ("users = 7", "users in .*: 7 is not a list of texts"),
        ("columns = 'lat'", "'lat' is not of the form name=value"),
        ("columns = 'speed=v'", "role=name pairs with the roles time, lat"),
        ("skip_bad = 'maybe'", "'maybe' is neither true nor false"),
        ("eps = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_refused_with_the_name_and_what_it_takes(tmp_path: Path, text: str, said: str):
    with pytest.raises(SettingsError, match=said):
        Settings.gather(file_with(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SettingsError, match="No such file"):
        Settings.gather(tmp_path / "none.toml")


def test_a_name_in_the_environment_that_is_nearly_right_is_refused_and_others_are_left_alone():
    assert Settings.gather(environ={"ASTRAY_PORTO": "/data", "ASTRAY_HOME": "x"}) == Settings()
    with pytest.raises(SettingsError, match=r"ASTRAY_FALSE_ALARM_RATES .* did you mean ASTRAY_FALSE_ALARM_RATE"):
        Settings.gather(environ={"ASTRAY_FALSE_ALARM_RATES": "0.1"})


def test_every_setting_is_documented_and_no_flag_is_unknown():
    rows = reference()
    assert [name for name, _, _ in rows] == list(NAMES)
    assert all(len(says) > 10 for _, _, says in rows)
    with pytest.raises(SettingsError, match="--speed: there is no such setting"):
        Settings.gather(flags={"speed": 1})
