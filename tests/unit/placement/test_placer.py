"""A pod's slices at once, all or nothing; and what is said when there is no room."""

import pytest
from fleets import fleet, grant, picture, place, placer, spots

from instaslice.geometry import models
from instaslice.placement import (
    Demand,
    Fleet,
    FleetError,
    GpuId,
    Grant,
    NodeName,
    NotFree,
    NotHeld,
    Plan,
    Refusal,
    Share,
    Short,
    UnknownGpu,
    moves,
)


class TestSeveralSlices:
    def test_go_to_one_node_over_several_gpus(self):
        answer = place(fleet("a0", "b0", "b1", held=[("a0", "1g.5gb", 0)]), "7g.40gb", "4g.20gb", "3g.20gb")
        assert {gpu[0] for gpu, _ in spots(answer)} == {"b"}

    def test_are_granted_in_the_order_in_which_they_were_asked_for(self):
        answer = place(fleet("a0"), "1g.5gb", "4g.20gb", "2g.10gb")
        assert [grant.want for grant in answer.grants] == ["1g.5gb", "4g.20gb", "2g.10gb"]

    def test_are_placed_the_largest_first(self):
        assert spots(place(fleet("a0"), "1g.5gb", "3g.20gb", policy="first-fit")) == [("a0", 4), ("a0", 0)]

    def test_which_is_the_largest_goes_by_the_part_of_a_gpu(self):
        """A 2g.12gb is half of an A30, a 3g.20gb half of an A100, and a 2g.10gb a quarter of one."""
        made = fleet("a0")
        made.add_gpu(GpuId("a1"), NodeName("a"), models.named("A30"))
        answer = place(made, "2g.10gb", "2g.12gb", "3g.20gb", policy="first-fit")
        assert spots(answer) == [("a0", 4), ("a1", 0), ("a0", 0)]

    def test_go_to_the_node_that_is_best_for_the_largest(self):
        full = [("b1", "1g.5gb", start) for start in range(6)]
        answer = place(fleet("a0", "b0", "b1", held=full), "1g.5gb", "2g.10gb", policy="best-fit")
        assert answer.node == "a", "b1 is the fullest that takes a 1g.5gb, but takes no 2g.10gb"

    def test_find_the_only_way_beside_a_shared_gpu_too(self):
        made = fleet("a0")
        made.add_shared_gpu(GpuId("a1"), NodeName("a"), 1000)
        answer = place(made, *["2g.10gb"] * 3, "1g.10gb", Share(1000), policy="first-fit")
        assert [gpu for gpu, _ in spots(answer)] == [*["a0"] * 4, "a1"]

    def test_find_the_only_way_where_taking_one_by_one_gets_stuck(self):
        wants = ["2g.10gb"] * 3 + ["1g.10gb"]
        assert len(spots(place(fleet("a0"), *wants, policy="first-fit"))) == 4

    def test_are_refused_together_when_one_does_not_fit(self):
        made = fleet("a0", "b0", held=[("a0", "1g.5gb", 0), ("b0", "1g.5gb", 0)])
        refusal = place(made, "4g.20gb", "3g.20gb", "3g.20gb")
        assert refusal.short is Short.START

    def test_never_lie_on_two_nodes(self):
        refusal = place(fleet("a0", "b0"), "7g.40gb", "1g.5gb")
        assert refusal.short is Short.TOGETHER
        assert str(refusal).startswith("each of the 2 slices would fit, but no node has room for all at once")

    def test_and_shares_may_come_together(self):
        made = fleet("a0", "b0")
        made.add_shared_gpu(GpuId("b1"), NodeName("b"), 1000)
        assert [gpu for gpu, _ in spots(place(made, Share(400), "1g.5gb", Share(600)))] == ["b1", "b0", "b1"]


class TestCommit:
    def test_holds_and_release_gives_back(self):
        door = placer(fleet("a0", "a1"))
        plan = door.place(Demand(("3g.20gb", "1g.5gb")))
        before = picture(door.fleet)
        door.commit(plan)
        assert sum(map(len, picture(door.fleet).values())) == 2
        door.release(plan.grants)
        assert picture(door.fleet) == before

    def test_of_a_stale_plan_holds_nothing(self):
        door = placer(fleet("a0"))
        plan = door.place(Demand(("1g.5gb", "4g.20gb")))
        door.fleet.take(grant("a0", "4g.20gb", 0))
        before = picture(door.fleet)
        with pytest.raises(NotFree, match=r"4g\.20gb at 0 on GPU a0, which holds"):
            door.commit(plan)
        assert picture(door.fleet) == before

    def test_of_nothing_is_left_half_done(self):
        door = placer(fleet("a0", held=[("a0", "1g.5gb", 0)]))
        before = picture(door.fleet)
        with pytest.raises(NotHeld):
            door.release([grant("a0", "1g.5gb", 0), grant("a0", "1g.5gb", 1)])
        assert picture(door.fleet) == before
        move = moves.Move(grant("a0", "1g.5gb", 0), grant("a0", "1g.5gb", 3))
        with pytest.raises(NotFree):
            door.rearrange(moves.Rearrangement((move,), Plan((grant("a0", "4g.20gb", 0),))))
        assert picture(door.fleet) == before

    def test_what_is_not_held_cannot_be_given_back(self):
        with pytest.raises(NotHeld, match=r"1g\.5gb at 3 on GPU a0, which holds nothing"):
            fleet("a0").release(grant("a0", "1g.5gb", 3))

    def test_an_unknown_gpu_and_a_second_of_the_same_name_are_errors(self):
        made = fleet("a0")
        with pytest.raises(UnknownGpu, match="no GPU b7"):
            made.take(grant("b7", "1g.5gb", 0))
        with pytest.raises(FleetError, match="a GPU a0 already"):
            made.add_gpu(GpuId("a0"), NodeName("a"), models.named("A30"))

    def test_a_closed_gpu_keeps_what_it_holds_and_can_give_it_back(self):
        made = fleet("a0", held=[("a0", "3g.20gb", 4)])
        made.close("a0")
        made.take(grant("a0", "1g.5gb", 0))
        made.release(grant("a0", "3g.20gb", 4))
        made.open("a0")
        assert [str(k) for k in made.held("a0")] == ["1g.5gb at 0"]
        assert made.nodes["a"].free == 7

    def test_a_removed_gpu_is_gone_with_its_node(self):
        made = fleet("a0", "b0", held=[("a0", "3g.20gb", 4)])
        made.remove_gpu("a0")
        assert list(made.nodes) == ["b"]
        assert len(made) == 1
        assert spots(place(made, "7g.40gb")) == [("b0", 0)]

    def test_a_node_is_full_when_no_open_gpu_of_it_has_room_for_anything(self):
        made = fleet("a0", "a1", held=[("a0", "7g.40gb", 0), *(("a1", "1g.5gb", start) for start in range(6))])
        assert not made.full("a")
        made.take(grant("a1", "1g.5gb", 6))
        assert made.full("a")
        made.release(grant("a0", "7g.40gb", 0))
        assert not made.full("a")
        made.close("a0")
        assert made.full("a")
        made.add_shared_gpu(GpuId("a2"), NodeName("a"), 1000)
        assert not made.full("a")
        assert not made.full("elsewhere")


FRAGMENTED = [(gpu, "1g.5gb", start) for gpu in ("a0", "b0") for start in (0, 4)]


@pytest.mark.parametrize(
    "held, wants, admits, short, words",
    [
        pytest.param(
            FRAGMENTED,
            ["3g.20gb"],
            None,
            Short.START,
            "2 GPUs hold enough free memory for 3g.20gb but no legal start; 1 move would free one",
            id="memory is free in the wrong places",
        ),
        pytest.param(
            [("a0", "7g.40gb", 0), ("b0", "4g.20gb", 0), ("b0", "2g.10gb", 4)],
            ["3g.20gb"],
            None,
            Short.MEMORY,
            "3g.20gb needs 4 free memory slices on one GPU; the most that one has is 2; "
            "a slice must end or a GPU be added",
            id="no memory is free",
        ),
        pytest.param(
            [],
            ["3g.40gb"],
            None,
            Short.PROFILE,
            "profile 3g.40gb does not exist on any node (A100-40GB has 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, "
            "4g.20gb, 7g.40gb)",
            id="no GPU has the profile",
        ),
        pytest.param(
            [("a0", "1g.5gb+me", 0), ("b0", "1g.5gb+me", 0)],
            ["1g.5gb+me"],
            None,
            Short.ENGINES,
            "2 GPUs hold enough free memory for 1g.5gb+me but not the media engines that it needs; "
            "a slice must end or a GPU be added",
            id="the media engines are taken",
        ),
        pytest.param(
            [],
            ["1g.5gb"],
            lambda node: False,
            Short.NODES,
            "2 GPUs have room for 1g.5gb, but no such node admits the pod",
            id="no node admits the pod",
        ),
        pytest.param(
            [("a0", "7g.40gb", 0)],
            ["1g.5gb"],
            lambda node: node == "a",
            Short.NODES,
            "1 GPU has room for 1g.5gb, but no such node admits the pod",
            id="the node that admits the pod is full",
        ),
        pytest.param(
            [],
            [Share(100)],
            None,
            Short.GPUS,
            "100 MiB of a shared GPU was asked for, but no GPU is shared by memory",
            id="no GPU is shared",
        ),
        pytest.param([], [], None, Short.GPUS, "the pod asks for no slice", id="nothing asked for"),
        pytest.param(
            [("a0", "7g.40gb", 0), ("b0", "7g.40gb", 0)],
            ["1g.5gb"],
            lambda node: False,
            Short.NODES,
            "GPUs have 1g.5gb, but no such node admits the pod",
            id="no node admits the pod, nor has room",
        ),
        pytest.param(
            [("a0", "1g.5gb", 0), ("a0", "1g.5gb", 4), ("b0", "7g.40gb", 0)],
            ["3g.20gb"],
            None,
            Short.START,
            "1 GPU holds enough free memory for 3g.20gb but no legal start; 1 move would free one",
            id="memory is free in the wrong places of one",
        ),
        pytest.param(
            [*(("a0", "1g.5gb", start) for start in range(6)), ("b0", "4g.20gb", 0), ("b0", "2g.10gb", 4)],
            ["3g.20gb"],
            lambda node: node == "b",
            Short.MEMORY,
            "3g.20gb needs 4 free memory slices on one GPU; the most that one has is 2; "
            "a slice must end or a GPU be added",
            id="what other nodes have free does not count",
        ),
        pytest.param(
            [("a0", "1g.5gb", 0), ("a0", "1g.5gb", 2), ("a0", "3g.20gb", 4)]
            + [("b0", "1g.5gb", start) for start in range(4)],
            ["4g.20gb"],
            None,
            Short.START,
            "1 GPU holds enough free memory for 4g.20gb but no legal start; 2 moves would free one",
            id="two moves",
        ),
    ],
)
def test_a_refusal_says_what_is_short_and_what_would_help(held, wants, admits, short, words):
    refusal = place(fleet("a0", "b0", held=held), *wants, admits=admits)
    assert (refusal.short, str(refusal)) == (short, words)


def test_closed_gpus_say_so():
    made = fleet("a0")
    made.close("a0")
    assert str(place(made, "1g.5gb")) == "every GPU that has 1g.5gb is closed"


def test_an_empty_fleet_says_so():
    assert str(place(Fleet(), "1g.5gb")) == "there is no GPU in the fleet"


def test_a_model_whose_placements_nobody_published_says_so():
    refusal = place(fleet("a0", model=models.named("Thor-iGPU")), "1g.0gb")
    assert "not known until its driver has been asked" in str(refusal)
    assert place(fleet("a0", model=models.named("Thor-iGPU")), "1g.0gb", "1g.0gb").short is Short.GPUS


class TestShares:
    def shared(self, *sizes):
        made = Fleet()
        for number, size in enumerate(sizes):
            made.add_shared_gpu(GpuId(f"{number}x"), NodeName(str(number)), size)
        return placer(made)

    def take(self, door, want):
        answer = door.place(Demand((want,)))
        assert isinstance(answer, Plan), str(answer)
        door.commit(answer)
        return answer.grants[0]

    def test_go_where_least_is_left_over(self):
        door = self.shared(1000, 1000)
        assert [self.take(door, Share(mib)).gpu for mib in (600, 500, 400, 500)] == ["0x", "1x", "0x", "1x"]

    def test_are_never_promised_twice(self):
        door = self.shared(1000)
        self.take(door, Share(700))
        refusal = door.place(Demand((Share(400),)))
        assert str(refusal) == "400 MiB of a shared GPU was asked for; the most that is free on one is 300 MiB"

    def test_of_a_fraction_depend_on_the_gpu_and_are_rounded_up(self):
        door = self.shared(1001)
        assert self.take(door, Share(fraction=0.5)).size == 501

    def test_prefer_the_smaller_gpu(self):
        assert self.take(self.shared(2000, 1000), Share(500)).gpu == "1x"

    def test_larger_than_any_gpu_say_so(self):
        assert str(self.shared(1000).place(Demand((Share(2000),)))).endswith("the largest has 1000 MiB")

    def test_whose_node_does_not_admit_the_pod_say_so(self):
        door = self.shared(1000, 500)
        refused = door.place(Demand((Share(100),), lambda node: False))
        assert refused.short is Short.NODES
        assert str(refused).startswith("2 GPUs have room for 100 MiB of a shared GPU, but no such node admits")
        assert door.place(Demand((Share(100),), lambda node: node == "0")).grants[0].gpu == "0x"

    def test_beside_which_nothing_is_cut_say_so_to_who_wants_a_slice(self):
        assert "does not exist on any node (no GPU is cut by MIG)" in str(self.shared(10).place(Demand(("1g.5gb",))))

    def test_most_of_which_is_taken_say_what_is_left_of_the_emptiest(self):
        door = self.shared(1000, 2000)
        for size in (800, 1700):
            self.take(door, Share(size))
        assert str(door.place(Demand((Share(400),)))).endswith("the most that is free on one is 300 MiB")

    def test_are_taken_from_shared_gpus_alone_and_slices_from_those_that_are_cut(self):
        made = fleet("a0")
        made.add_shared_gpu(GpuId("a1"), NodeName("a"), 1000)
        slice_, share = grant("a0", "1g.5gb", 0), Grant(NodeName("a"), GpuId("a1"), Share(10), 0, 10)
        for wrong in (slice_._replace(gpu=GpuId("a1")), share._replace(gpu=GpuId("a0")), share._replace(size=0)):
            with pytest.raises(NotFree):
                made.take(wrong)
            with pytest.raises(NotHeld):
                made.release(wrong)
        assert made.held(GpuId("a1")) == ()

    def test_of_a_closed_gpu_are_kept_and_can_be_given_back_and_taken(self):
        door = self.shared(1000)
        held = self.take(door, Share(700))
        door.fleet.close(held.gpu)
        assert door.fleet.full("0")
        assert isinstance(door.place(Demand((Share(10),))), Refusal)
        door.fleet.release(held)
        door.fleet.take(held._replace(size=400))
        door.fleet.open(held.gpu)
        assert isinstance(door.place(Demand((Share(600),))), Plan)
        assert isinstance(door.place(Demand((Share(601),))), Refusal)

    def test_of_one_pod_are_refused_where_only_one_of_them_fits(self):
        refused = self.shared(1000, 1000).place(Demand((Share(600), Share(600))))
        assert refused.short is Short.TOGETHER

    def test_fill_a_node_when_all_memory_is_given_out(self):
        door = self.shared(1000)
        self.take(door, Share(999))
        assert not door.fleet.full("0")
        self.take(door, Share(1))
        assert door.fleet.full("0")

    def test_are_given_back_whole(self):
        door = self.shared(1000)
        grant = self.take(door, Share(1000))
        door.release([grant])
        assert self.take(door, Share(1000)) == grant
        with pytest.raises(NotHeld):
            door.release([grant._replace(size=1001)])

    def test_of_one_pod_are_spread_over_the_gpus_of_its_node_where_they_must(self):
        made = Fleet()
        for gpu in ("0", "1"):
            made.add_shared_gpu(GpuId(gpu), NodeName("n"), 1000)
        answer = placer(made).place(Demand((Share(600), Share(600), Share(400), Share(400))))
        assert sorted(grant.gpu for grant in answer.grants) == ["0", "0", "1", "1"]
