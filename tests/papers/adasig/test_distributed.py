"""Two processes against one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from tests.papers.adasig import ranks  # noqa: E402
from tests.papers.adasig.training import model  # noqa: E402

from assay.papers.adasig import DistributedAdaSigDPOptimizer  # noqa: E402

CASES = [(clipping, mode) for clipping in ("adasig", "psac") for mode in ("hooks", "ghost")]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What the two ranks ended with, for every case."""
    if not torch.distributed.is_gloo_available():
        pytest.skip("no gloo")
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(ranks.run, (str(folder), CASES), nprocs=2)
    return [torch.load(folder / f"rank{i}.pt", weights_only=True) for i in range(2)]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_two_ranks_train_as_one_process(both, case):
    first, second = both[0][case], both[1][case]
    alone = ranks.train(*case)
    assert torch.equal(first["weights"], second["weights"])
    assert first["slopes"] == second["slopes"]
    assert torch.allclose(first["weights"], alone["weights"], atol=1e-5)
    assert first["slopes"] == alone["slopes"]
    assert first["kind"] == f"Distributed{alone['kind']}"
    if case[0] == "adasig":
        assert len(set(alone["slopes"])) > 2


@pytest.fixture
def one_rank(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_what_works_in_one_process_only_is_refused():
    def make(net, **options):
        inner = torch.optim.SGD(net.parameters(), lr=0.5)
        return DistributedAdaSigDPOptimizer(
            inner, noise_multiplier=1.0, expected_batch_size=32, **options
        )

    make(model())
    with pytest.raises(ValueError, match="diagnostics: got True, wants False with several"):
        make(model(), diagnostics=True)
    with pytest.raises(ValueError, match=r"parameters: got torch.bfloat16, wants float32"):
        make(model(dtype=torch.bfloat16))
