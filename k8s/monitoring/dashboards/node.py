"""One card: what is on it, what was granted and taken back, who waits, and what all that saves."""
from board import Board
from parts import (BLUE, DEVICE, GREEN, GREY, ORANGE, PINK, RATE, RED, SKY, YELLOW, as_limit, colored, figure, graph, highest,
                   names, quantiles, rate, steps, total)

CLASSES = [("in_use", BLUE), ("retained", SKY), ("permanent", GREEN), ("pooled", YELLOW), ("draining", ORANGE),
           ("external", PINK), ("reserve", GREY), ("free", "#E8E8E8")]
CAPACITY = (total("device_capacity_bytes", "UUID", DEVICE), "capacity")


def summary():
    return [
        figure("Used", "Share of the card that is not free, by the broker's ledger. Near 100 % is as it should be: what is "
               "kept is taken back as soon as it is wanted.", "percentunit",
               f"max by (UUID) (vram_broker:device_used:ratio{{{DEVICE}}})"),
        figure("Overcommitted", "More is claimed than the card has; nothing grows until that is over. Above 0 for a minute: "
               "look for what has grown without asking (external in the panel below), and see VramBrokerOvercommitted.", "bytes",
               total("device_bytes", "UUID", DEVICE, ',class="overcommitted"'), thresholds=steps((None, "green"), (1, "red"))),
        figure("External memory", "Whether the driver's readings say what others have. Not known: see VramBrokerBlind.", "none",
               f"min by (UUID) (vram_broker_device_external_known{{{DEVICE}}})",
               thresholds=steps((None, "orange"), (1, "green")),
               mappings=names({"0": ("not known", "orange"), "1": ("known", "green")})),
        figure("Waiting now", "Uses that wait to be admitted now. The page behind the link says what holds each of them up.",
               "short", total("waiting_uses", "UUID", DEVICE), thresholds=steps((None, "green"), (1, "orange"))),
        figure("Oldest wait", "For how long the oldest of them waits. Past --max-wait (30 s) only age counts; past 60 s see "
               "VramBrokerUseWaitsTooLong.", "s", highest("oldest_wait_seconds", "UUID", DEVICE),
               thresholds=steps((None, "green"), (30, "orange"), (60, "red"))),
        figure("Stall avoided, 1 h", "Of the stall that releasing everything after each use would have cost in the last hour, "
               "the share that was avoided. Low with much retained: what is kept is not what comes next; declare runs.",
               "percentunit", f"max by (UUID) (vram_broker:stall_avoided:ratio_1h{{{DEVICE}}})"),
    ]


def card():
    return [
        graph("The card by class", "The ledger: all classes add up to the capacity (dashed), unless more is claimed than there "
              "is. Retained is what was kept for uses to come; draining is on its way out; external belongs to others. Much "
              "external: find its process with nvidia-smi. Much draining for long: a worker does not release.", "bytes",
              [(total("device_bytes", "class", DEVICE, ',class!~"free|overcommitted"'), "{{class}}"),
               (total("device_bytes", "class", DEVICE, ',class="free"'), "{{class}}"), CAPACITY],
              stacked=True, overrides=[colored(*of) for of in CLASSES] + [as_limit("capacity")], width=24, height=10),
        graph("The card by component", "What each component is charged: layers, fixed bytes, and of a running use window and "
              "activation. A component that goes and comes back within seconds is in the panel Regret of the dashboard "
              "VRAM broker: workers.", "bytes",
              [(total("component_charge_bytes", "worker, component", DEVICE), "{{worker}}/{{component}}"), CAPACITY],
              stacked=True, overrides=[as_limit("capacity")], width=24, height=10),
    ]


def decisions():
    return [
        graph("Decisions", "Decisions a second by kind and reason. Refusals (cannot_fit) need a smaller use or another card; "
              "revocations by overcommitted come from memory that nobody asked for.", "ops",
              [(rate("decisions_total", "kind, reason", DEVICE) + " > 0", "{{kind}}: {{reason}}")]),
        graph("Bytes decided on", "Layers granted, kept after a use, asked back, or asked to be loaded ahead, a second.", "binBps",
              [(rate("decision_bytes_total", "kind, reason", DEVICE) + " > 0", "{{kind}}: {{reason}}")]),
        graph("Uses", "Uses admitted and ended a second, and of those admitted the ones with fewer than all layers. Mostly "
              "partial ones: the card is too small for what runs at once.", "ops",
              [(rate("uses_begun_total", "UUID", DEVICE), "begun"), (rate("uses_ended_total", "UUID", DEVICE), "ended"),
               (rate("partial_grants_total", "UUID", DEVICE), "partial grants")]),
        graph("Evictions and releases", "Evicted: given up for somebody else's need. Released: no use is known to come. Revoked: "
              "what workers have released after being asked. Released, and loaded again soon after: declare runs, so that the "
              "broker knows what comes.", "binBps",
              [(rate("evicted_bytes_total", "UUID", DEVICE), "evicted"),
               (rate("released_bytes_total", "UUID", DEVICE), "released"),
               (rate("revoked_bytes_total", "UUID", DEVICE), "revoked, as reported")]),
        graph("Where granted layers came from", "Reused: on the card already. Loaded ahead: copied while nobody waited for it. "
              "Loaded: copied during uses. The more is reused and loaded ahead, the less compute waits.", "binBps",
              [(rate("reused_bytes_total", "UUID", DEVICE), "reused"),
               (rate("loaded_ahead_bytes_total", "UUID", DEVICE), "loaded ahead"),
               (rate("loaded_bytes_total", "UUID", DEVICE), "loaded during uses")], stacked=True,
              overrides=[colored("reused", GREEN), colored("loaded ahead", SKY), colored("loaded during uses", ORANGE)]),
        graph("Refusals", "Refusals a second by reason: each is a use that cannot fit beside what never "
              "leaves. The caller gets need, capacity and holders; the decision's explanation is on the page behind the link.",
              "ops", [(rate("decisions_total", "reason", DEVICE, ',kind="refusal"'), "{{reason}}")],
              overrides=[colored("cannot_fit", RED)]),
    ]


def waits():
    return [
        graph("Waiting uses", "Uses that wait to be admitted. Now and then is how a full card looks; never 0: too much runs on "
              "this card. The log names each that waits for --long-wait, with who holds what.", "short",
              [(total("waiting_uses", "UUID", DEVICE), "waiting"),
               (f"sum by (UUID) (increase(vram_broker_long_waits_total{{{DEVICE}}}[5m]))", "named as long in 5 min")]),
        graph("Age of the oldest wait", "Past 60 s see VramBrokerUseWaitsTooLong.", "s",
              [(highest("oldest_wait_seconds", "UUID", DEVICE), "oldest")],
              thresholds=steps((None, "transparent"), (60, "red"))),
        graph("Time waited until admitted", "Of the uses admitted in that time. A p99 of seconds with few waiting: layers take "
              "long to be released, see the panel beside this one.", "s", quantiles("wait_seconds", "", DEVICE)),
        graph("Time until layers asked back were released", "From asking to the report. Long: a worker is busy in a use, or not "
              "listening; past --release-deadline it is overdue.", "s", quantiles("revocation_seconds", "", DEVICE)),
        graph("Overdue revocations", "Bytes above their targets when the deadline passed, a second. Above 0: see "
              "VramBrokerRevocationStuck.", "binBps",
              [(rate("under_released_bytes_total", "UUID", DEVICE), "bytes past their deadline")],
              overrides=[colored("bytes past their deadline", RED)]),
        graph("Time until the driver showed the release", "For how long readings went on to show what a worker had released. "
              "Long: the allocator keeps it, or the driver frees late.", "s", quantiles("shown_free_seconds", "", DEVICE)),
    ]


def stall():
    return [
        graph("Stall, and stall avoided", "Seconds a second for which compute waited for copies, and would have waited more had "
              "every use released everything. Much stall with little avoided: the working set does not fit this card.",
              "percentunit", [(rate("stall_avoided_seconds_total", "UUID", DEVICE), "avoided"),
                              (rate("stall_seconds_total", "UUID", DEVICE), "stall")], stacked=True,
              overrides=[colored("avoided", GREEN), colored("stall", ORANGE)]),
        graph("Share of stall avoided, 1 h", "The recorded ratio over an hour: how well keeping works in the long run.",
              "percentunit", [(f"max by (UUID) (vram_broker:stall_avoided:ratio_1h{{{DEVICE}}})", "avoided")]),
        graph("Loaded again within 10 s", "Bytes a second that were released and came back, beside all that is loaded, over "
              "10 minutes. A fifth or more: see VramBrokerThrash.", "binBps",
              [(f"sum by (UUID) (vram_broker:regret_bytes:rate10m{{{DEVICE}}})", "loaded again"),
               (f"sum by (UUID) (vram_broker:loaded_bytes:rate10m{{{DEVICE}}})", "loaded")]),
        graph("Driver readings", "Readings a second that the driver gave, or failed to give. Failures, or none: see "
              "VramBrokerBlind.", "ops", [(f"sum by (result) (rate(vram_broker_driver_readings_total{{{DEVICE}}}{RATE}))",
                                          "{{result}}")], overrides=[colored("ok", GREEN), colored("failed", RED)]),
    ]


def build():
    return (Board("node", "VRAM broker: card", "One card over time: who has it, what was granted and taken back, who waits.",
                  every_device=False)
            .row("Now", *summary()).row("The card", *card()).row("Grants and evictions", *decisions())
            .row("Waits", *waits()).row("What it saves", *stall()))
