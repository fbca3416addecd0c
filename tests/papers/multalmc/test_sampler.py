"""The loop: step by step, resumed, with chains that leave the numbers, and what comes out."""

import io

import pytest
import torch

from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.multcdiff import MultCDiff
from assay.papers.multalmc.sampler import LOOK_EVERY, TooManyDead
from assay.papers.multalmc.targets.mixtures import GaussianMixture


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def target():
    return GaussianMixture(torch.tensor([[-2.0, 0.0], [3.0, 1.0]]), 0.5)


def sampler(n_steps=150, seed=0, **options):
    return MultALMC(target(), n_steps=n_steps, step_size=0.01, generator=seeded(seed), **options)


@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
def test_a_loop_over_steps_is_sample_bitwise(dynamics):
    whole = sampler(dynamics=dynamics).sample(7)
    by_hand, generator = sampler(dynamics=dynamics), seeded()
    state = by_hand.init(7, generator)
    kept = []
    for _ in range(150):
        before = state.x.clone()
        kept.append((state, before))
        state, info = by_hand.step(generator, state)
    assert torch.equal(state.x, whole.samples)
    assert (state.n_grad, state.n_logp) == (whole.n_grad, whole.n_logp)
    assert info.lam == by_hand.lambdas[-1]
    assert all(torch.equal(old.x, x) for old, x in kept), "steps leave old states as they were"
    with pytest.raises(ValueError, match=r"^state: got one after 150 steps"):
        by_hand.step(generator, state)


@pytest.mark.parametrize("at", [1, LOOK_EVERY, 120, 149])
@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
def test_a_run_goes_on_bitwise_where_it_was_saved(at, dynamics):
    whole = sampler(dynamics=dynamics).sample(5, return_path=True)
    saved = io.BytesIO()
    broken = sampler(dynamics=dynamics)

    def save(state, info):
        if state.step == at:
            torch.save(broken.state_dict(), saved)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.sample(5, callback=save, return_path=True)
    assert broken.state_dict()["step"] == at, "also after the break"
    saved.seek(0)
    fresh = MultALMC(target(), n_steps=150, step_size=0.01, dynamics=dynamics)  # no generator
    fresh.load_state_dict(torch.load(saved, weights_only=True))
    result = fresh.sample(5, return_path=True)
    assert torch.equal(result.samples, whole.samples)
    assert (result.n_grad, result.n_logp) == (whole.n_grad, whole.n_logp)
    assert torch.equal(result.trace["path"], whole.trace["path"])
    assert torch.equal(result.trace["path_steps"], whole.trace["path_steps"])
    assert not torch.equal(fresh.sample(5).samples, whole.samples), "the next run is a new one"


def test_what_is_no_state_generator_or_device_is_named():
    one = MultALMC(target(), n_steps=150, step_size=0.01)
    state = one.init(3, seeded())
    with pytest.raises(TypeError, match=r"^state: got NoneType"):
        one.step(seeded(), None)
    with pytest.raises(TypeError, match=r"^generator: got NoneType"):
        one.step(None, state)
    with pytest.raises(ValueError, match=r"^device: got 'nowhere'"):
        one.sample(3, device="nowhere")


def test_a_state_of_another_sampler_is_refused():
    one = sampler()
    with pytest.raises(RuntimeError, match=r"^state_dict: got no run"):
        one.state_dict()
    states = []
    one.sample(3, callback=lambda state, info: states.append(one.state_dict()))
    with pytest.raises(ValueError, match=r"^state: got the keys"):
        one.load_state_dict({"x": torch.zeros(3, 2)})
    other = MultALMC(lambda x: -x.square().sum(1), dim=3, n_steps=150, step_size=0.01)
    with pytest.raises(ValueError, match=r"^state: is of a run with dim 2, wants 3"):
        other.load_state_dict(states[-1])
    with pytest.raises(ValueError, match=r"^state: is of a run with n_steps 150, wants 10"):
        sampler(n_steps=10).load_state_dict(states[-1])
    with pytest.raises(ValueError, match=r"^state: is of a run with eps .*, wants 0\.3"):
        sampler(eps=0.3).load_state_dict(states[-1])
    for change in ({"friction": (0.2, 0.6)}, {"srock_stages": 7}, {"fast_scale": "target"}):
        with pytest.raises(ValueError, match=f"^state: is of a run with {next(iter(change))} "):
            sampler(**change).load_state_dict(states[-1])
    with pytest.raises(TypeError, match=r"^state: got NoneType"):
        one.load_state_dict(None)
    reverse = MultCDiff(lambda x: -x.square().sum(1), dim=2, n_steps=150)
    with pytest.raises(ValueError, match=r"^state: is of a run with class 'MultALMC', wants"):
        reverse.load_state_dict(states[-1])
    one.load_state_dict(states[70])
    with pytest.raises(ValueError, match=r"^num_samples: got 4, wants 3"):
        one.sample(4)
    with pytest.raises(ValueError, match=r"^dtype: got torch.float16, wants torch.float"):
        one.sample(3, dtype=torch.float16)


def test_the_path_has_even_frames_from_start_to_end():
    result = sampler().sample(3, return_path=True)
    steps = result.trace["path_steps"]
    assert result.trace["path"].shape == (100, 3, 2)
    assert (steps[0], steps[-1]) == (0, 150)
    assert torch.equal(result.trace["path"][-1], result.samples)
    assert result.trace["lambda"].shape == (150,)
    assert "path" not in sampler().sample(3).trace


def test_seeds_decide_and_torchs_own_seeds_those_without_generator():
    assert torch.equal(sampler(seed=3).sample(4).samples, sampler(seed=3).sample(4).samples)
    assert not torch.equal(sampler(seed=3).sample(4).samples, sampler(seed=4).sample(4).samples)
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        runs.append(MultALMC(target(), n_steps=10, step_size=0.01).sample(4).samples)
    assert torch.equal(*runs)


class Trap:
    """A normal whose score is not a number once a chain of the marked ones has moved."""

    dim = 1

    def __init__(self, dead):
        self.dead = dead
        self.calls = 0

    def log_prob(self, x):
        return -x.square().sum(1) / 2

    def score(self, x):
        self.calls += 1
        bad = torch.arange(len(x)) < self.dead
        return torch.where(bad[:, None] & (x != 0) & (20 < self.calls < 200), torch.nan, -x)


def test_dead_chains_are_parked_marked_and_never_averaged():
    steps = []
    trapped = MultALMC(Trap(3), n_steps=200, step_size=0.01, generator=seeded())
    result = trapped.sample(400, callback=lambda state, info: steps.append(state))
    assert result.finite_mask.sum() == 397
    assert not result.finite_mask[:3].any()
    assert result.samples[:3].isnan().all()
    assert result.samples[3:].isfinite().all()
    assert steps[LOOK_EVERY - 2].x[:3].isnan().all()
    assert (steps[LOOK_EVERY - 1].x[:3] == 0).all()
    assert not steps[-1].alive[:3].any(), "finite again, but dead"
    free = MultALMC(Trap(0), n_steps=200, step_size=0.01, generator=seeded()).sample(400)
    assert torch.equal(free.samples[3:], result.samples[3:])


def test_a_run_in_which_many_die_is_refused_early():
    trapped = MultALMC(Trap(5), n_steps=2000, step_size=0.01, generator=seeded())
    with pytest.raises(TooManyDead, match=r"^step_size: 5 of 400 chains .* after 64 of 2000"):
        trapped.sample(400)
    assert trapped.sample(400).finite_mask.all(), "the trap is over; the sampler runs again"


def test_a_step_too_large_for_the_target_is_noticed():
    stiff = GaussianMixture(torch.zeros(1, 2), 1e-4)
    with pytest.raises(TooManyDead, match="srock_stages"):
        MultALMC(stiff, n_steps=400, step_size=0.01, generator=seeded()).sample(100)


def test_export_for_arviz():
    arviz = pytest.importorskip("arviz")
    result = MultALMC(Trap(3), n_steps=200, step_size=0.01, generator=seeded()).sample(400)
    data = result.to_inference_data()
    assert data.posterior["x"].shape == (397, 1, 1)
    assert data.posterior.attrs["draws_per_chain"] == 1
    assert data.posterior.attrs["n_grad"] == result.n_grad
    wanted = result.samples[result.finite_mask].mean().item()
    assert float(data.posterior["x"].mean()) == pytest.approx(wanted, rel=1e-5)
    assert isinstance(data, arviz.InferenceData)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_samples": 0}, ValueError, r"^num_samples: got 0"),
        ({"num_samples": 1.5}, TypeError, r"^num_samples: got 1.5"),
        ({"dtype": torch.int64}, TypeError, r"^dtype: got torch.int64"),
        ({"device": "meta"}, ValueError, r"^generator: got one on cpu, wants it on meta"),
        ({"callback": 3}, TypeError, r"^callback: got int"),
        ({"return_path": 1}, TypeError, r"^return_path: got 1"),
    ],
)
def test_bad_arguments_of_sample(arguments, error, message):
    with pytest.raises(error, match=message):
        sampler().sample(**{"num_samples": 4, **arguments})


def test_bad_arguments_of_init():
    for n, generator, message in ((0, seeded(), r"^n: got 0"), (3, 5, r"^generator: got int")):
        with pytest.raises((ValueError, TypeError), match=message):
            sampler().init(n, generator)


def test_constants_of_another_dtype_are_named():
    centre = torch.zeros(2, dtype=torch.float64)
    mixed = MultALMC(lambda x: -(x - centre).square().sum(1), dim=2, n_steps=10, step_size=0.01)
    with pytest.raises(ValueError, match=r"^target.log_prob: got torch.float64"):
        mixed.sample(4)
    assert mixed.sample(4, dtype=torch.float64).samples.dtype == torch.float64


def test_a_potential_in_place_of_a_log_density_is_warned_of():
    wrong = MultALMC(lambda x: x.square().sum(1) / 2, dim=2, n_steps=20, step_size=0.01)
    with pytest.warns(UserWarning, match="sign of log_prob"):
        wrong.sample(50)
