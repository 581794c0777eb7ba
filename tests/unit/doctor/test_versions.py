"""Packages that go together and packages that do not, from metadata alone."""

from doctor_parts import finder

from skyrl_nat.doctor.versions import (
    Installed,
    as_numbers,
    conflicts,
    cuda_of_torch,
    find_installed,
    lock_differences,
    unmet,
)

OURS = Installed(
    name="skyrl-nat",
    version="0.1",
    requires=(
        "torch>=2.11",
        "ray[default]>=2.60",
        'vllm>=0.26; extra == "vllm"',
        'old; python_version < "3"',
        "not a req !",
    ),
)


def test_what_is_missing_or_too_old_is_named_with_who_requires_it() -> None:
    find = finder(torch="2.9.1", ray="2.60.0")
    assert unmet(OURS, [], find) == ["skyrl-nat 0.1 requires torch>=2.11, found torch 2.9.1"]
    assert unmet(OURS, ["vllm"], finder(torch="2.13.0+cpu", ray="2.61")) == [
        "skyrl-nat 0.1 requires vllm>=0.26, found none"
    ]
    assert unmet(OURS, [], finder(torch="2.13.0", ray="3.0rc1")) == []


def test_a_pin_that_another_package_breaks_is_a_conflict() -> None:
    packages = {
        "vllm": Installed(name="vllm", version="0.26.0", requires=("torch==2.11.0", "setuptools==78", "torchvision")),
        "transformers": Installed(name="transformers", version="5.0", requires=("tokenizers<0.23",)),
        "torch": Installed(name="torch", version="2.13.0"),
        "tokenizers": Installed(name="tokenizers", version="0.22.9"),
        "setuptools": Installed(name="setuptools", version="84"),
    }
    assert conflicts(packages.get) == ["vllm 0.26.0 requires torch==2.11.0, found torch 2.13.0"]
    packages["torch"] = Installed(name="torch", version="2.11.0+cu130")
    assert conflicts(packages.get) == []


def test_this_environment_is_read() -> None:
    assert find_installed("pytest") is not None
    assert find_installed("no-such-package-anywhere") is None


def test_the_build_of_torch_is_read_from_its_file(tmp_path) -> None:
    file = tmp_path / "version.py"
    file.write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    assert cuda_of_torch(file) == "13.0"
    file.write_text("cuda: Optional[str] = None\n")
    assert cuda_of_torch(file) == ""
    assert cuda_of_torch(None) == ""


def test_a_lock_names_versions_without_the_label_of_a_build() -> None:
    lock = "torch==2.13.0\nray==2.60.0\nunused==1\n"
    assert lock_differences(lock, finder(torch="2.13.0+cpu", ray="2.61.0")) == ["ray 2.61.0, locked 2.60.0"]


def test_versions_compare_as_numbers() -> None:
    assert as_numbers("12.8") < as_numbers("13.0")
    assert as_numbers("9.2") < as_numbers("12.0")
