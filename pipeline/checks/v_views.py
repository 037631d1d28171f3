"""V1 to V4, views: an id names one list of members, a member is in its views, ids grow, and all
living members end in one view."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.violations import event, nothing, union, violations, with_name


def one_list(tables: Tables) -> DataFrame:
    """Find violations of V1: ids of views that name two lists of members."""
    if not tables.occurring.any("view"):
        return nothing(tables)
    by_id = Window.partitionBy("run", "view", "creator").orderBy("short_id", "place")
    first = F.first(F.struct("short_id", "number", "members")).over(by_id)
    found = tables.groups.views.withColumn("first", first).where(
        F.col("first.members") != F.col("members")
    )
    return violations(
        with_name(found, tables, "creator", "name"),
        "V1",
        time="time",
        detail=F.format_string("view %d of %s has two lists of members", "view", "name"),
        witness=[event("first.short_id", "first.number"), event("short_id", "number")],
    )


def own_views(tables: Tables) -> DataFrame:
    """Find violations of V2: views without the member that installed them, or without a living
    member that was not asked whether it lives."""
    if not tables.occurring.any("view"):
        return nothing(tables)
    without = tables.groups.views.where(~F.array_contains("members", F.col("short_id")))
    not_in_it = violations(
        with_name(without, tables, "short_id", "name"),
        "V2",
        time="time",
        detail=F.format_string("%s installed view %d, in which it is not", "name", "view"),
        witness=[event("short_id", "number")],
    )
    return union(not_in_it, _put_out_unheard(tables))


def _put_out_unheard(tables: Tables) -> DataFrame:
    """Find living members that the maker of a view left out without having asked them."""
    has_verifier = F.coalesce(F.map_contains_key("protocols", words.VERIFIER), F.lit(False))
    asking = tables.members.incarnations.where(has_verifier).select("run", "short_id")
    by_hand = tables.rig.runs.where("views_by_hand").select("run")
    is_own = (F.col("creator") == F.col("short_id")) & (F.col("stream") == words.REGULAR)
    left_out = (
        _pairs(tables)
        .where(is_own)
        .join(F.broadcast(asking), ["run", "short_id"], how="left_semi")
        .join(F.broadcast(by_hand), "run", how="left_anti")
        .withColumn("gone", F.explode(F.array_except("before.members", "members")))
    )
    living = tables.members.living("gone")
    living_gone = left_out.join(F.broadcast(living), ["run", "gone"], how="left_semi")
    pair = ["run", "short_id", "gone"]
    asked = with_last(living_gone.withColumn("at", F.col("number")), _heard(tables), pair, "heard")
    unheard = asked.where(~F.coalesce("heard.is_confirmed", F.lit(False)))
    return violations(
        with_name(unheard, tables, "gone", "name"),
        "V2",
        time="time",
        detail=F.format_string(
            "view %d is without %s, which lives, and was not confirmed to be dead", "view", "name"
        ),
        witness=[event("short_id", "before.number"), event("short_id", "number")],
    )


def _heard(tables: Tables) -> DataFrame:
    """Return when a member confirmed another one (`gone`) to be dead, and when that one was cleared
    or came back into its views: from then on it has to be asked anew."""
    is_confirmed = F.struct((F.col("stream") == words.CONFIRMED).alias("is_confirmed"))
    said = (
        tables.of("suspect")
        .where(F.col("stream").isin(words.CLEARED, words.CONFIRMED))
        .select(
            "run", "short_id", F.col("peer").alias("gone"), "number", is_confirmed.alias("heard")
        )
    )
    back = _pairs(tables).select(
        "run",
        "short_id",
        F.explode(F.array_except("members", "before.members")).alias("gone"),
        "number",
        F.struct(F.lit(False).alias("is_confirmed")).alias("heard"),
    )
    return said.unionByName(back).select(
        "run",
        "short_id",
        "gone",
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        "heard",
    )


def _pairs(tables: Tables) -> DataFrame:
    """Return each view of a member but its first, with the view `before`."""
    in_turn = Window.partitionBy("run", "short_id").orderBy("place")
    before = F.lag(F.struct("number", "view", "members")).over(in_turn)
    return tables.groups.views.withColumn("before", before).where(F.col("before").isNotNull())


def growing_ids(tables: Tables) -> DataFrame:
    """Find violations of V3: views whose number is not above that of the view before."""
    if not tables.occurring.any("view"):
        return nothing(tables)
    return violations(
        _pairs(tables).where(F.col("view") <= F.col("before.view")),
        "V3",
        time="time",
        detail=F.format_string("view %d was installed after view %d", "view", "before.view"),
        witness=[event("short_id", "before.number"), event("short_id", "number")],
    )


def one_view(tables: Tables) -> DataFrame:
    """Find violations of V4: living members that do not end in one view of just the living ones."""
    if not tables.occurring.any("view"):
        return nothing(tables)
    last = _last_views(tables).join(_kept_apart(tables), "run", how="left_anti")
    return union(_without_view(last), _odd(tables, last), _in_two_views(last))


def _last_views(tables: Tables) -> DataFrame:
    """Return the living members of groups, each with its last view (`held`; null: none), and the
    set of all living ones (`living`)."""
    is_member = F.coalesce(F.map_contains_key("protocols", "GMS"), F.lit(False))
    held = F.struct("place", "number", "view", "creator", "members")
    ends = tables.rig.runs.select("run", "end")
    # Members go on for a moment after the end, and may part in it: those views are not of the run.
    of_run = tables.groups.views.join(ends, "run", how="inner").where(
        F.col("time") <= F.col("end") + words.EPSILON
    )
    last = of_run.groupBy("run", "short_id").agg(F.max(held).alias("held"))
    groups = tables.groups.views.select("run").distinct()
    everybody = Window.partitionBy("run")
    return (
        tables.members.incarnations.where("lives")
        .select("run", "short_id", "shown", is_member.alias("is_member"))
        .join(last, ["run", "short_id"], how="left")
        .where(F.col("is_member") | F.col("held").isNotNull())
        .join(groups, "run", how="left_semi")
        .join(ends, "run", how="inner")
        .withColumn("living", F.collect_set("short_id").over(everybody))
    )


def _kept_apart(tables: Tables) -> DataFrame:
    """Return the runs in which a fault that never ended may keep members apart, or a pause that
    lasted into the quiet phase, and longer than what was left of the run."""
    newest = tables.rig.fault_events.groupBy("run", "id").agg(
        F.max_by(F.struct("phase", "do"), "number").alias("last")
    )
    stands = (F.col("last.phase") == "on") & F.col("last.do").isin(*words.KEEPS_APART)
    living = tables.members.living()
    rest = F.col("over") - F.col("end")
    runs = tables.rig.runs.select("run", "quiet", F.col("end").alias("over"))
    paused = (
        tables.members.holds.where(F.col("do") == "pause")
        .join(living, ["run", "short_id"], how="left_semi")
        .join(runs, "run", how="inner")
        .where((F.col("end") > F.col("quiet")) & (rest < F.col("end") - F.col("start")))
    )
    return newest.where(stands).select("run").unionByName(paused.select("run")).distinct()


def _without_view(last: DataFrame) -> DataFrame:
    return violations(
        last.where(F.col("held").isNull()),
        "V4",
        time="end",
        detail=F.format_string("%s ended without a view", "shown"),
        witness=[event("short_id", F.lit(0))],
    )


def _odd(tables: Tables, last: DataFrame) -> DataFrame:
    """Find last views without a living member, or with one that had ended."""
    members, living = F.col("held.members"), F.col("living")
    odd = last.where(F.col("held").isNotNull()).select(
        "*",
        F.array_except(living, members).alias("missing"),
        F.array_except(members, living).alias("gone"),
    )
    odd = odd.where((F.size("missing") > 0) | (F.size("gone") > 0))
    shown = tables.members.incarnations.groupBy("run").agg(
        F.map_from_entries(F.collect_list(F.struct("short_id", "shown"))).alias("names")
    )
    named = odd.join(shown, "run", how="inner")
    parts = F.array(
        F.when(F.size("missing") > 0, F.concat(F.lit("without "), _listed("missing"))),
        F.when(
            F.size("gone") > 0,
            F.concat(F.lit("with "), _listed("gone"), F.lit(", which had ended")),
        ),
    )
    which = F.format_string("%s ended in view %d ", "shown", "held.view")
    return violations(
        named,
        "V4",
        time="end",
        detail=F.concat(which, F.array_join(F.array_compact(parts), " and ")),
        witness=[event("short_id", "held.number")],
    )


def _listed(members: str) -> Column:
    names = F.transform(
        members, lambda short: F.coalesce(F.col("names")[short], F.lower(F.hex(short)))
    )
    return F.array_join(F.array_sort(names), ", ")


def _in_two_views(last: DataFrame) -> DataFrame:
    by_rank = Window.partitionBy("run").orderBy("short_id")
    first = F.first(F.struct("shown", "short_id", "held")).over(by_rank)
    ids = [F.struct(f"{held}.view", f"{held}.creator") for held in ("held", "first.held")]
    found = last.where(F.col("held").isNotNull()).withColumn("first", first).where(ids[0] != ids[1])
    return violations(
        found,
        "V4",
        time="end",
        detail=F.format_string("%s and %s ended in two views", "first.shown", "shown"),
        witness=[
            event("first.short_id", "first.held.number"),
            event("short_id", "held.number"),
        ],
    )
