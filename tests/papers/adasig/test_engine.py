"""The privacy engine: every clipping in every mode, and the same accounting for all."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from opacus.validators.errors import UnsupportedModuleError  # noqa: E402
from tests.papers.adasig.training import dataset, flat, generator, model  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from assay.papers.adasig import AdaSigDPOptimizer, AdaSigPrivacyEngine  # noqa: E402
from assay.papers.adasig.engine import CLIPPINGS, WEIGHTS  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off", "ignore:Full backward hook", "ignore:Optimal order"
)
KWARGS = {
    "nsgd": {"r": 0.5},
    "adaptive": {
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.01,
        "unclipped_num_std": 5.0,
    },
}
NORMS = {"per_layer": [1.0] * 4}
GHOST = ("adasig", "sigmoid", *WEIGHTS, "flat")


def private(clipping, mode="hooks", kwargs=None, engine=None, **options):
    """(engine, net, optimizer, criterion, loader) of a training with Poisson sampling."""
    engine = engine or AdaSigPrivacyEngine()
    net = model()
    torch.manual_seed(11)  # of the sampling
    options = {"max_grad_norm": NORMS.get(clipping, 1.0), **options}
    if isinstance(engine, AdaSigPrivacyEngine):
        options["clipping_kwargs"] = KWARGS.get(clipping, {}) if kwargs is None else kwargs
    made = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.2),
        data_loader=DataLoader(dataset(), batch_size=24),
        clipping=clipping,
        grad_sample_mode=mode,
        noise_multiplier=1.0,
        noise_generator=generator(),
        **options,
    )
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    return engine, made[0], made[1], criterion, made[-1]


def train(net, optimizer, criterion, loader, epochs=2):
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(net(inputs), targets).backward()
            optimizer.step()
    return flat(net)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_every_clipping_trains_and_costs_the_same(clipping):
    engine, *parts = private(clipping)
    start = flat(parts[0])
    weights = train(*parts)
    assert weights.isfinite().all()
    assert (weights != start).all()
    assert engine.accountant.history == [(1.0, 0.25, 8)]


@pytest.mark.parametrize("clipping", GHOST)
def test_modes_agree(clipping):
    results = [train(*private(clipping, mode)[1:]) for mode in ("hooks", "functorch", "ghost")]
    assert torch.allclose(results[0], results[1], atol=1e-5)
    assert torch.allclose(results[0], results[2], atol=1e-4)


def test_clippings_differ():
    results = {c: train(*private(c)[1:]) for c in CLIPPINGS if c != "per_layer"}
    for a, b in itertools.combinations(results, 2):
        assert not torch.allclose(results[a], results[b], atol=1e-6), (a, b)


def test_its_flat_clipping_is_opacus_own():
    ours = train(*private("flat")[1:])
    theirs = train(*private("flat", engine=PrivacyEngine())[1:])
    assert torch.equal(ours, theirs)


def test_arguments_reach_optimizers_and_weights():
    _, _, optimizer, _, _ = private("adasig", kwargs={"initial_slope": 5.0, "accounting": "joint"})
    assert (optimizer.slope, optimizer.noise_multipliers[0]) == (5.0, 1.0)
    _, _, optimizer, _, _ = private("sigmoid", kwargs={"initial_slope": 5.0})
    assert (optimizer.slope, optimizer.adapt) == (5.0, False)
    norms = torch.tensor([2.0])
    for clipping, weight in WEIGHTS.items():
        kwargs = {} if clipping == "auto_v" else {"r": 0.3}
        _, _, optimizer, _, _ = private(clipping, kwargs=kwargs, max_grad_norm=0.4)
        assert torch.equal(optimizer.weights(norms)[0], weight(norms, 0.4, **kwargs))


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
@pytest.mark.parametrize("clipping", ["adasig", "psac", "adaptive"])
def test_epsilon_is_that_of_plain_training(accountant, clipping):
    engines = {
        "plain": private("flat", engine=PrivacyEngine(accountant=accountant)),
        "ours": private(clipping, engine=AdaSigPrivacyEngine(accountant=accountant)),
    }
    spent = {}
    for name, (engine, *parts) in engines.items():
        train(*parts)
        spent[name] = engine.get_epsilon(1e-5)
    assert spent["plain"] == spent["ours"] > 0


@pytest.mark.parametrize(("accountant", "tolerance"), [("prv", 0.01), ("rdp", 0.01)])
def test_epsilon_is_that_of_dp_accounting(accountant, tolerance):
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    sigma, rate, steps, delta = 1.8018, 512 / 8000, 312, 1e-5
    engine = AdaSigPrivacyEngine(accountant=accountant)
    _, optimizer = _bare(sigma)
    hook = engine.accountant.get_optimizer_hook_fn(sample_rate=rate)
    for _ in range(steps):
        hook(optimizer)
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma))
    theirs = {"prv": PLDAccountant, "rdp": RdpAccountant}[accountant]()
    theirs.compose(dp.SelfComposedDpEvent(event, steps))
    expected = theirs.get_epsilon(delta)
    assert engine.get_epsilon(delta) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_both_releases_together_cost_what_is_accounted(accounting):
    """The two queries as two Gaussian mechanisms of dp-accounting, composed.

    The paper's split composes to the accounted epsilon; the joint one would cost more if its two
    worst cases could meet in one sample, which `test_privacy` shows they cannot.
    """
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    _, optimizer = _bare(1.3, accounting=accounting)
    both, one = RdpAccountant(), RdpAccountant()
    for sigma in optimizer.noise_multipliers:
        both.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), 50))
    one.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.3), 50))
    ratio = both.get_epsilon(1e-5) / one.get_epsilon(1e-5)
    if accounting == "paper":
        assert ratio == pytest.approx(1, rel=1e-6)
    else:
        assert ratio > 1.1


def _bare(sigma, **options):
    p = nn.Parameter(torch.zeros(1))
    p.grad_sample = torch.zeros(1, 1)
    return p, AdaSigDPOptimizer(
        torch.optim.SGD([p], lr=1.0), noise_multiplier=sigma, expected_batch_size=1, **options
    )


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_noise_for_a_budget(mode):
    engine, net = AdaSigPrivacyEngine(accountant="rdp"), model()
    made = engine.make_private_with_epsilon(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.2),
        data_loader=DataLoader(dataset(), batch_size=24),
        target_epsilon=4.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
        clipping="adasig",
        clipping_kwargs={"initial_slope": 2.0},
        grad_sample_mode=mode,
    )
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    wanted = get_noise_multiplier(
        target_epsilon=4.0, target_delta=1e-5, sample_rate=0.25, epochs=2, accountant="rdp"
    )
    assert made[1].noise_multiplier == wanted
    assert made[1].slope == 2.0
    train(made[0], made[1], criterion, made[-1])
    assert 3.5 < engine.get_epsilon(1e-5) <= 4.0


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("clipping", ["adasig", "psac"])
def test_physical_batches_give_what_logical_ones_give(clipping, mode):
    whole = train(*private(clipping, mode)[1:], epochs=3)
    _, net, optimizer, criterion, loader = private(clipping, mode)
    for _ in range(3):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=7, optimizer=optimizer
        ) as parts:
            train(net, optimizer, criterion, parts, epochs=1)
    assert torch.allclose(flat(net), whole, atol=1e-5)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_empty_poisson_batches(mode):
    engine, net = AdaSigPrivacyEngine(), model()
    made = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.2),
        data_loader=DataLoader(dataset(), batch_size=1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        clipping="adasig",
        grad_sample_mode=mode,
    )
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    sizes = []
    for inputs, targets in made[-1]:
        sizes.append(len(inputs))
        made[1].zero_grad()
        criterion(made[0](inputs), targets).backward()
        made[1].step()
    assert 0 in sizes
    assert len(made[1].slope_history) == len(sizes)
    assert flat(net).isfinite().all()
    assert engine.accountant.history == [(1.0, 1 / 96, 96)]


def test_a_checkpoint_carries_the_slope(tmp_path):
    engine, net, optimizer, criterion, loader = private("adasig")
    train(net, optimizer, criterion, loader)
    engine.save_checkpoint(path=tmp_path / "saved.pt", module=net, optimizer=optimizer)
    other, fresh, resumed, _, _ = private("adasig", kwargs={"initial_slope": 3.0})
    other.load_checkpoint(path=tmp_path / "saved.pt", module=fresh, optimizer=resumed)
    assert resumed.slope == optimizer.slope != 3.0
    assert other.get_epsilon(1e-5) == engine.get_epsilon(1e-5)
    assert torch.equal(flat(fresh), flat(net))


def test_what_opacus_refuses_is_refused():
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    with pytest.raises(UnsupportedModuleError, match="BatchNorm"):
        AdaSigPrivacyEngine().make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.2),
            data_loader=DataLoader(dataset(), batch_size=24),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            clipping="adasig",
        )


def test_accumulation_under_poisson_sampling_is_refused():
    _, net, optimizer, criterion, loader = private("adasig")
    inputs, targets = next(iter(loader))
    optimizer.zero_grad()
    criterion(net(inputs), targets).backward()
    with pytest.raises(ValueError, match="Poisson sampling is not compatible with grad accumul"):
        criterion(net(inputs), targets).backward()


def test_accumulation_without_poisson_sampling_is_accounted_for():
    engine, net, optimizer, criterion, loader = private("adasig", poisson_sampling=False)
    optimizer.zero_grad()
    for inputs, targets in itertools.islice(loader, 2):
        criterion(net(inputs), targets).backward()
    optimizer.step()
    assert engine.accountant.history == [(1.0, 0.5, 1)]
    assert len(optimizer.slope_history) == 1


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_a_refused_module_can_be_tried_again(mode):
    net = model()
    options = {
        "module": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.2),
        "data_loader": DataLoader(dataset(), batch_size=24),
        "noise_multiplier": 1.0,
        "max_grad_norm": 1.0,
        "grad_sample_mode": mode,
    }
    with pytest.raises(ValueError, match="clipping: got 'adasgi'"):
        AdaSigPrivacyEngine().make_private(clipping="adasgi", **options)
    again = AdaSigPrivacyEngine().make_private(clipping="adasig", **options)
    train(*again[:2], again[2] if mode == "ghost" else nn.CrossEntropyLoss(), again[-1])
    assert len(again[1].slope_history) == 8


@pytest.mark.parametrize(
    ("clipping", "options", "error", "message"),
    [
        ("tanh", {}, ValueError, r"clipping: got 'tanh', wants one of adasig, sigmoid, auto_s"),
        ("adasig", {"max_grad_norm": [1.0] * 4}, TypeError, r"max_grad_norm: got .*, wants one"),
        ("adasig", {"max_grad_norm": -1.0}, ValueError, r"max_grad_norm: got -1.0, wants"),
        (
            "adasig",
            {"kwargs": {"slope": 1.0}},
            TypeError,
            "clipping_kwargs: got slope, wants some of accounting, adapt, .* clipping='adasig'",
        ),
        ("auto_v", {"kwargs": {"r": 1.0}}, TypeError, "got r, wants some of diagnostics, nonfin"),
        ("psac", {"kwargs": {"slope_lr": 1.0}}, TypeError, "got slope_lr, wants .*nonfinite, r "),
        ("sigmoid", {"kwargs": {"adapt": True}}, TypeError, "clipping_kwargs: got adapt, wants"),
        ("adasig", {"kwargs": {"noise_multiplier": 1.0}}, TypeError, "got noise_multiplier, want"),
        ("flat", {"kwargs": {"r": 1.0}}, TypeError, "clipping_kwargs: got r, wants none"),
        ("adaptive", {"kwargs": {"r": 1.0}}, TypeError, "got r, wants some of clipbound_learni"),
        ("adasig", {"kwargs": "r"}, TypeError, "clipping_kwargs: got 'r', wants a mapping"),
        ("nsgd", {"kwargs": {}}, TypeError, r"'r'"),
        ("psac", {"kwargs": {"r": 0.0}}, ValueError, r"r: got 0.0, wants a finite number > 0"),
        (
            "adasig",
            {"mode": "ghost_fsdp"},
            ValueError,
            r"grad_sample_mode: got 'ghost_fsdp', wants",
        ),
        ("per_layer", {"mode": "ghost"}, ValueError, "Unsupported combination"),
        ("adaptive", {"mode": "ghost"}, ValueError, "Unsupported combination"),
    ],
)
def test_bad_arguments(clipping, options, error, message):
    with pytest.raises(error, match=message):
        private(clipping, **options)
