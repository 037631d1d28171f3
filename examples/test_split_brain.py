"""What becomes of your messages when the network splits: `pytest examples`."""


def test_order_is_kept_while_a_tenth_of_all_frames_is_lost(cluster, chaos):
    group = cluster(members=3, stack="udp")
    with chaos.loss("10%") as loss:
        group.multicast(count=200, rate="100/s", size="100B..1KiB")
        group.wait_until_delivered()
    assert loss.bites > 0


def test_a_group_that_was_split_is_one_again(cluster, chaos):
    group = cluster(members=["ann", "bob", "cid"])
    group.multicast(count=500, rate="20/s")
    with chaos.partition(["ann"], ["bob", "cid"]):
        group.wait_for_view("bob", "cid")
    group.wait_for_view()
    resync = group.finish().run.resync
    assert resync.seconds < 30
