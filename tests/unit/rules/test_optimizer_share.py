"""Host time outside of the run is no share of the run."""

from gpuadvisor.rules.catalogue.unfused_optimizer import check
from tests.rules.cases.unfused_optimizer import MUL, STEP
from tests.rules.queued import K, queued


def test_the_host_spends_at_most_the_whole_run():
    evidence = queued([K(MUL, 0.1)] * 60, ranges=[(STEP, 0, 60)])
    (found,) = check(evidence)
    share = next(each.value for each in found.evidence if each.metric == "host_time_in_optimizer")
    times = evidence.known_facts.optimizer_steps.times
    assert times.total_ns > evidence.run_ns, "the step began before the first kernel did"
    assert 90 < share <= 100


def test_a_class_of_the_users_own_is_not_told_to_take_a_flag_of_torchs():
    kernels = [K(MUL, 2)] * 60
    for name, knobs, words in (
        ("Adam", None, "Construct Adam with `fused=True`."),
        ("CustomAdam", (), "Update all parameters of CustomAdam at once"),
    ):
        (found,) = check(queued(kernels, ranges=[(f"Optimizer.step#{name}.step", 0, 60)]))
        assert found.advice.startswith(words) and found.knobs == knobs


def test_lbfgs_works_on_all_parameters_at_once_already():
    assert not list(check(queued([K(MUL, 2)] * 60, ranges=[("Optimizer.step#LBFGS.step", 0, 60)])))
