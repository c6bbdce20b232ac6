"""The broker itself: does it live, how fast does it decide, what does it refuse, does it see the card."""
import parts
from board import Board
from parts import BROKER, DEVICE, RATE, colored, figure, graph, names, quantiles, rate, sheet, steps, total

JOB = f'job="vram-broker",{BROKER}'


def summary():
    return [
        figure("Up", "Brokers whose last scrape succeeded, of all. Fewer: see VramBrokerDown.", "percentunit",
               f"avg(up{{{JOB}}})", thresholds=steps((None, "red"), (1, "green"))),
        figure("Last start", "The epoch of the broker that started last. Lately, and nobody has rolled it out: its log ends with "
               "the reason.", "dateTimeFromNow", f"max(vram_broker_start_time_seconds{{{BROKER}}}) * 1000"),
        figure("Recovery", "For how long at most nothing grows yet after a restart. Above 0 for half a minute: see "
               "VramBrokerRecoveryTooLong.", "s", f"max(vram_broker_recovery_left_seconds{{{BROKER}}})",
               thresholds=steps((None, "green"), (0.001, "orange"))),
        figure("Draining", "1 while a broker drains: it admits no use and asks everything back. Nobody has asked for that: "
               "somebody with the admin role has.", "none", f"max(vram_broker_draining{{{BROKER}}})",
               thresholds=steps((None, "green"), (1, "orange")),
               mappings=names({"0": ("no", "green"), "1": ("draining", "orange")})),
        figure("Deciding, p99", "99 of 100 events of the last 5 minutes were decided within this time. Milliseconds: hundreds of "
               "known uses; more than that: the node's processors are taken.", "s",
               f"max(vram_broker:decision_seconds:p99_5m{{{BROKER}}})",
               thresholds=steps((None, "green"), (0.01, "orange"), (0.1, "red"))),
        figure("Mailbox", "Calls and other events that wait to be decided, of 4,096; past that calls are answered "
               "RESOURCE_EXHAUSTED. More than a few: deciding is too slow for what comes.", "short",
               f"max(vram_broker_mailbox_waiting{{{BROKER}}})", thresholds=steps((None, "green"), (64, "orange"), (2048, "red"))),
        sheet("Brokers", "Version and address of each broker. Two versions for longer than a roll-out: one was left behind.",
              "short", [(None, f"vram_broker_build_info{{{BROKER}}}")], device=parts.CHOSEN,
              keys={"cluster": "Cluster", "namespace": "Namespace", "node": "Node", "pod": "Pod", "instance": "Broker",
                    "version": "Version"}, width=24, height=5),
    ]


def decisions():
    return [
        graph("Time of a decision", "The core's time for an event, deciding included, over all kinds of events. A rising p99 with "
              "a steady load: more is known of the future than there was, or the node is busy.", "s",
              quantiles("decision_seconds", "", BROKER)),
        graph("Events", "Events a second by kind. Very many of one kind: a client calls in a loop.", "ops",
              [(rate("decision_seconds_count", "event", BROKER) + " > 0", "{{event}}")]),
        graph("Time by kind of event", "Mean time of an event of each kind. begin_use, end_use and declare_run plan, the others "
              "should be microseconds.", "s",
              [(f"{rate('decision_seconds_sum', 'event', BROKER)} / {rate('decision_seconds_count', 'event', BROKER)}",
                "{{event}}")]),
        graph("Share of time spent deciding", "Of one processor. Near 1 the mailbox fills.", "percentunit",
              [(rate("decision_seconds_sum", "instance", BROKER), "{{instance}}")]),
        graph("Mailbox and decision log", "Events that wait to be decided, of 4,096; and lines that the decision log dropped, as its "
              "disk is slow or full.", "short",
              [(total("mailbox_waiting", "instance", BROKER), "{{instance}}"),
               (f"sum by (instance) (increase(vram_broker_decision_log_dropped_total{{{BROKER}}}[5m]))",
                "{{instance}}: dropped in 5 min")]),
        graph("Refused calls", "Calls answered with a status other than OK, a second. RESOURCE_EXHAUSTED: does not fit, or a "
              "bound; ABORTED: re-attach; INVALID_ARGUMENT and FAILED_PRECONDITION: a client's error, its log names the field.",
              "ops", [(rate("refused_calls_total", "code", BROKER) + " > 0", "{{code}}")]),
    ]


def readings():
    return [
        graph("Driver readings", "Readings a second of each card, and those that failed. See VramBrokerBlind.", "ops",
              [(rate("driver_readings_total", "UUID, result", DEVICE), "{{UUID}}: {{result}}")], device=parts.OF_SERIES),
        graph("External memory known", "1 where readings say what others have on a card.", "short",
              [(f"min by (UUID) (vram_broker_device_external_known{{{DEVICE}}})", "{{UUID}}")], device=parts.OF_SERIES),
    ]


def restarts():
    return [
        graph("Restarts", "Starts of each broker within an hour. More than one: it fails again and again, and each time "
              "everything stops growing.", "short",
              [(f"changes(vram_broker_start_time_seconds{{{BROKER}}}[1h])", "{{instance}}")]),
        graph("Recovery left", "For how long at most nothing grows yet after a restart.", "s",
              [(f"vram_broker_recovery_left_seconds{{{BROKER}}}", "{{instance}}")]),
        graph("Sessions", "Attached; lost: the stream has ended; gone: proven dead, still charged.", "short",
              [(total("sessions", "state", BROKER), "{{state}}")], stacked=True,
              overrides=[colored("attached", parts.GREEN), colored("lost", parts.ORANGE), colored("gone", parts.RED)]),
        graph("Up over time", "1 where the last scrape succeeded. See VramBrokerDown.", "short", [(f"up{{{JOB}}}", "{{instance}}")]),
    ]


def scrapes():
    return [
        graph("Time of a scrape", "As Prometheus sees it. Near the scrape's timeout: scrape less often, or look for a busy "
              "node.", "s", [(f"scrape_duration_seconds{{{JOB}}}", "{{instance}}")]),
        graph("Samples of a scrape", "Series that a broker exposes: some 10 for each component, 6 for each session.", "short",
              [(f"scrape_samples_scraped{{{JOB}}}", "{{instance}}")]),
        graph("Scrapes served", "Requests for metrics a second, by whoever makes them.", "ops",
              [(f"sum by (instance) (rate(exposer_scrapes_total{{{JOB}}}{RATE}))", "{{instance}}")]),
        graph("Bytes served", "Bytes of metrics sent a second.", "binBps",
              [(f"sum by (instance) (rate(exposer_transferred_bytes_total{{{JOB}}}{RATE}))", "{{instance}}")]),
    ]


def build():
    return (Board("broker", "VRAM broker: broker", "The broker itself: life, decisions, refusals, readings, scrapes.",
                  annotated=False)
            .row("Now", *summary()).row("Decisions", *decisions()).row("The driver", *readings())
            .row("Life", *restarts()).row("Scrapes", *scrapes()))
