import threading

import pytest

from assay.papers.kvflow.timeline import Timeline


def test_overlap_and_busy_count_each_second_once():
    timeline = Timeline()
    timeline.add("compute", "a", 0.0, 2.0)
    timeline.add("compute", "b", 1.0, 3.0)
    timeline.add("load", "c", 2.5, 4.0)
    timeline.add("load", "d", 5.0, 6.0)
    assert timeline.busy("compute") == 3.0
    assert timeline.busy("load") == 2.5
    assert timeline.overlap("compute", "load") == 0.5
    assert timeline.busy("disk") == 0.0


def test_spans_of_many_threads_are_all_there():
    timeline = Timeline()

    def record():
        for _ in range(200):
            with timeline.span("compute", "prefill", 3):
                pass

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(timeline.spans("compute")) == 800
    assert all(0 <= span.start <= span.end for span in timeline.spans())
    timeline.clear()
    assert timeline.spans() == []


def test_a_span_is_recorded_where_its_body_raises():
    timeline = Timeline()
    with pytest.raises(KeyError), timeline.span("disk", "write"):
        raise KeyError
    assert [span.name for span in timeline.spans()] == ["write"]


def test_memory_is_bounded():
    timeline = Timeline(limit=3)
    for i in range(10):
        timeline.add("load", str(i), i, i + 1)
    assert [span.name for span in timeline.spans()] == ["7", "8", "9"]
    with pytest.raises(ValueError, match="limit: got 0, wants an integer >= 1"):
        Timeline(limit=0)
