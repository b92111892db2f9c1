"""The model of a card's queues: its rules, one by one."""

import pytest

from d2l_gpu.queues import QueueModel


def train(model, copies, steps, batches=4, wait=True):
    for k in range(batches):
        copies.put(f"copy {k}", 2, "to the card")
        if wait:
            steps.wait_stream(copies)
        steps.put(f"step {k}", 3, needs=f"copy {k}")


def times(model, lane):
    return [(span.name, span.start, span.end) for span in model.spans if span.lane == lane]


def test_one_stream_does_one_thing_after_another():
    model = QueueModel()
    train(model, model.stream("main"), model.stream("main"))
    assert model.end == 20 and times(model, "main")[:3] == [("copy 0", 0, 2), ("step 0", 2, 5), ("copy 1", 5, 7)]


def test_two_streams_take_the_first_copy_and_then_the_longer_of_the_two():
    model = QueueModel()
    train(model, model.stream("side"), model.stream("main"))
    assert model.end == 2 + 4 * 3 and not model.early
    assert times(model, "side") == [(f"copy {k}", 2 * k, 2 * k + 2) for k in range(4)]


def test_without_a_wait_it_is_faster_and_wrong():
    model = QueueModel()
    train(model, model.stream("side"), model.stream("main"), wait=False)
    assert model.end == 12
    assert model.early == ["step 0 begins before copy 0 has ended", "step 1 begins before copy 1 has ended"]


def test_a_wait_is_for_what_was_put_until_then():
    model = QueueModel()
    side, main = model.stream("side"), model.stream("main")
    side.put("copy 0", 2, "to the card")
    copied = side.record_event()
    side.put("copy 1", 2, "to the card")
    main.wait_event(copied)
    main.put("step 0", 3)
    main.wait_stream(side)
    main.put("step 1", 3)
    assert times(model, "main") == [("step 0", 2, 5), ("step 1", 5, 8)]


def test_to_wait_for_what_is_over_changes_nothing():
    model = QueueModel()
    early = model.stream("side").record_event()
    model.stream("main").put("a", 3)
    model.stream("main").wait_event(early)
    model.stream("main").put("b", 1, "to the host")  # behind a all the same
    assert model.end == 4


def test_an_order_delays_none_that_was_put_before_it():
    model = QueueModel()
    model.stream("copies").put("copy", 2, "to the card")
    model.stream("one").wait_stream(model.stream("copies"))
    for name, length in (("one", 3), ("two", 4), ("three", 2)):
        model.stream(name).put("product", length, share=0.6)
    assert [times(model, name)[0][1:] for name in ("one", "two", "three")] == [(2, 5), (5, 9), (0, 2)]


def test_an_engine_that_is_full_makes_the_second_stream_wait():
    for share, end in ((1.0, 6), (0.6, 6), (0.5, 3)):
        model = QueueModel()
        for name in ("one", "two"):
            model.stream(name).put("product", 3, share=share)
        assert model.end == end


def test_three_shares_that_do_not_fit_together_wait_for_room():
    model = QueueModel()
    model.stream("one").put("a", 4, share=0.5)
    model.stream("two").put("b", 2, share=0.4)
    model.stream("three").put("c", 3, share=0.4)
    assert times(model, "three") == [("c", 2, 5)]


def test_copies_in_one_direction_share_an_engine_and_in_two_do_not():
    for back, end in (("to the card", 4), ("to the host", 2)):
        model = QueueModel()
        model.stream("one").put("in", 2, "to the card")
        model.stream("two").put("out", 2, back)
        assert model.end == end


def test_an_order_does_not_begin_before_the_host_has_put_it():
    model = QueueModel(launch=1)
    for k in range(3):
        for name in ("one", "two"):
            model.stream(name).put(f"{k}", 0.5)
    assert model.end == 6.5 and times(model, "host")[-1] == ("2", 5, 6)


def test_a_host_that_waits_puts_nothing_meanwhile():
    model = QueueModel(launch=1)
    model.stream("main").put("a", 5)
    model.stream("main").synchronize()
    model.stream("main").put("b", 5)
    assert times(model, "host") == [("a", 0, 1), ("waits", 1, 6), ("b", 6, 7)] and model.end == 12
    for _ in range(2):  # the second time there is nothing to wait for
        model.stream("main").synchronize()
    assert times(model, "host")[3:] == [("waits", 7, 12)]


@pytest.mark.parametrize("bad", [{"engine": "gpu"}, {"length": -1}, {"share": 0}, {"share": 1.5}])
def test_what_makes_no_sense_is_refused_by_value(bad):
    with pytest.raises(ValueError, match=str(list(bad.values())[0])):
        QueueModel().stream("main").put("x", **{"length": 1} | bad)


def test_the_picture_says_in_words_what_it_shows():
    model = QueueModel(until=20)
    train(model, model.stream("<side>"), model.stream("main"), wait=False)
    html = model._repr_html_()
    assert "<side>" not in html and "<title>Time line. &lt;side&gt;: copy 0 0-2," in html and "step 0 begins before copy 0 has ended" in html
    assert html.count("<rect") == 1 + 8 and html.count('stroke-width="3" stroke-dasharray') == 2
    assert ">20</text>" in html and repr(model).endswith("end: 12")
    assert "end: 0" in QueueModel()._repr_html_()


def test_cards_have_engines_of_their_own_and_share_the_host():
    one, two = QueueModel(launch=1), QueueModel(launch=1)
    for card in range(2):
        one.stream("cuda:0").put(f"product {card}", 6)
        two.stream(f"cuda:{card}", card).put(f"product {card}", 6)
    assert (one.end, two.end) == (13, 8)
