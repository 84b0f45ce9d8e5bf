import pytest

from common.config import Config, describe, load_config
from common.errors import InputError


def write(tmp_path, text, name="a.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_overrides_win_over_file_and_file_over_parent(tmp_path):
    write(tmp_path, "ppo: {kl_coef: 0.03, clip: 0.1}\nseed: 7", "parent.yaml")
    child = write(tmp_path, "extends: parent.yaml\nppo: {clip: 0.3}", "child.yaml")
    config = load_config(child, ["ppo.kl_coef=0.05", "data.kinds=[chain,word]"])
    assert (config.seed, config.ppo.clip, config.ppo.kl_coef) == (7, 0.3, 0.05)
    assert config.data.kinds == ("chain", "word")


def test_unknown_key_names_the_closest_one(tmp_path):
    with pytest.raises(InputError, match=r"unknown key 'ppo.kl_koef'; the closest known key is 'ppo.kl_coef'"):
        load_config(write(tmp_path, "ppo: {kl_koef: 0.1}"))
    with pytest.raises(InputError, match=r"unknown key 'pppo'; the closest known key is 'ppo'"):
        load_config(write(tmp_path, "pppo: {kl_coef: 0.1}"))
    with pytest.raises(InputError, match=r"closest known key is 'data.temperature'"):
        load_config(write(tmp_path, "seed: 1"), ["data.temprature=0.5"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ppo: {clip: -1}", r"ppo.clip = -1: .*greater than 0"),
        ("ppo: {credit: best}", r"ppo.credit = 'best'"),
        ("data: {pass_low: 0.9}", r"pass_low 0.9 is above pass_high 0.8"),
        ("data: {paths: 4}", r"paths 4 is below measure_paths 8"),
        ("- 1", "mapping"),
        ("a: [", "not readable as YAML"),
        ("extends: a.yaml", "extends itself"),
    ],
)
def test_bad_values_are_one_line_errors(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_config(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_missing_file_names_a_near_one(tmp_path):
    write(tmp_path, "seed: 1", "tiny.yaml")
    with pytest.raises(InputError, match=r"is .*tiny.yaml meant"):
        load_config(tmp_path / "tinny.yaml")


def test_malformed_override(tmp_path):
    with pytest.raises(InputError, match=r"want section.key=value"):
        load_config(write(tmp_path, "seed: 1"), ["ppo.kl_coef"])


def test_every_field_is_described():
    text = describe("base", "lora", "data", "sft", "prm", "ppo", "curriculum", "eval", "rounds")
    for name, field in Config.model_fields.items():
        for key, item in getattr(field.annotation, "model_fields", {}).items():
            assert item.description, f"{name}.{key}"
            assert f"{name}.{key} = " in text
