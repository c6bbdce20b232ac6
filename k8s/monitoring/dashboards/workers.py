"""Pipelines and workers: what of each was kept, for what and at what gain; what came back too soon; who misbehaves."""
import parts
from board import Board, query_variable
from parts import (BROKER, COMPONENT, OF_ROW, OF_SERIES, WORKER, colored, graph, highest, names, quantiles, rate, sheet,
                   total)

OF = "UUID, worker, component"
NAME = "{{worker}}/{{component}}"
HELD_UNUSED = f"({total('component_held_bytes', OF, COMPONENT)} * ({highest('component_in_use', OF, COMPONENT)} == bool 0))"


def pipelines():
    return [
        graph("Runs", "Declared runs that wait, and started ones, of each pipeline. A queue that only grows: the card, or the "
              "link, is too slow for what is asked. Nothing at all: drivers declare no runs, and what is kept is a guess.",
              "short", [(total("runs", "pipeline, state", BROKER, ',pipeline=~"$pipeline"'), "{{pipeline}}: {{state}}")],
              stacked=True),
        graph("Sessions", "Attached; lost: the stream has ended; gone: proven dead, still charged until a reading shows the "
              "bytes free. Lost or gone for minutes: a worker dies or cannot reach the broker.", "short",
              [(total("sessions", "state", BROKER), "{{state}}")], stacked=True,
              overrides=[colored("attached", parts.GREEN), colored("lost", parts.ORANGE), colored("gone", parts.RED)]),
    ]


def kept():
    return [
        graph("Kept after uses, and why", "Bytes a second that stayed at the ends of uses, by component and reason. "
              "kept_for_next_use rests on declared runs or on habits, kept_by_recency on nothing but the order of uses. Only "
              "recency: declare pipelines and runs.", "binBps",
              [(rate("component_kept_bytes_total", OF + ", reason", COMPONENT) + " > 0", NAME + ": {{reason}}")],
              device=OF_SERIES, stacked=True, width=24, height=10),
        graph("Held without a use", "Layers that components hold while no use of them runs: what was kept, and what is loaded "
              "ahead.", "bytes", [(HELD_UNUSED, NAME)], device=OF_SERIES, stacked=True),
        graph("Gain of what is held", "Stall that these layers save the first pass of the next use: bytes times the stall that "
              "each copied byte was measured to cost. A large holder with next to no gain hides its copies behind compute; "
              "what it holds is the first to go.", "s",
              [(f"{HELD_UNUSED} * {highest('component_stall_seconds_per_byte', OF, COMPONENT)}", NAME)], device=OF_SERIES,
              stacked=True),
        sheet("Components now", "What each component holds, may hold, and is charged; what it is planned with; and what came "
              "back within 10 s of its release since its worker attached. Held above target for long: it does not release.",
              "bytes", [
                  ("Held", total("component_held_bytes", OF, COMPONENT)),
                  ("Target", total("component_target_bytes", OF, COMPONENT)),
                  ("Charge", total("component_charge_bytes", OF, COMPONENT)),
                  ("Use", highest("component_in_use", OF, COMPONENT)),
                  ("Pass", highest("component_pass_seconds", OF, COMPONENT)),
                  ("Link", highest("component_link_bytes_per_second", OF, COMPONENT)),
                  ("Regret", total("component_regret_bytes_total", OF, COMPONENT))],
              device=OF_ROW, keys={"UUID": "UUID", "worker": "Worker", "component": "Component"},
              units={"Pass": "s", "Link": "binBps", "Use": "none"},
              mappings={"Use": names({"0": ("-", "text"), "1": ("runs", "blue")})}),
    ]


def learned():
    return [
        graph("Compute of one pass", "As planned with: measured, or declared while it is not; 0: not known, then the plan "
              "cannot tell what a byte is worth: declare pass_seconds.", "s",
              [(highest("component_pass_seconds", OF, COMPONENT), NAME)], device=OF_SERIES),
        graph("Link rate", "Of the copies to the card, as planned with. Far below the bus: memory that is not pinned, or "
              "several workers copying at once.", "binBps",
              [(highest("component_link_bytes_per_second", OF, COMPONENT), NAME)], device=OF_SERIES),
        graph("Stall for each GiB copied", "What copying cost during uses, as measured: the worth of a byte. 0: copies hide "
              "behind compute, or nothing was measured.", "s",
              [(f"{highest('component_stall_seconds_per_byte', OF, COMPONENT)} * 1024 * 1024 * 1024", NAME)],
              device=OF_SERIES),
        graph("Regret", "Bytes a second released and loaded again within 10 s. Above a few MiB/s for minutes: uses come in an "
              "order that nobody declared; see VramBrokerThrash.", "binBps",
              [(rate("component_regret_bytes_total", OF, COMPONENT), NAME)], device=OF_SERIES),
        graph("Reloads", "All that is copied to the card a second, during uses and ahead of them, beside what had been "
              "released within 10 s before (10 minutes' rates).", "binBps",
              [(f"vram_broker:loaded_bytes:rate10m{{{parts.DEVICE}}}", "{{UUID}}: loaded"),
               (f"vram_broker:regret_bytes:rate10m{{{parts.DEVICE}}}", "{{UUID}}: loaded again")], device=OF_SERIES),
        graph("Time waited until admitted", "By card. The dashboard VRAM broker: card has one card's waits.", "s",
              quantiles("wait_seconds", "UUID", parts.DEVICE), device=OF_SERIES),
    ]


def workers():
    worker = "instance, worker"
    return [
        graph("Pools", "What workers' allocators keep unused. Large beside uses that wait: a worker does not trim when told.",
              "bytes", [(total("worker_pool_bytes", worker, WORKER), "{{worker}}")], stacked=True),
        graph("Unexplained", "What the driver shows for a worker beyond its charge: contexts and libraries, or a leak where it "
              "grows; see VramBrokerResidualGrowth.", "bytes",
              [(total("worker_unexplained_bytes", worker, WORKER), "{{worker}}")], stacked=True),
        graph("Under-released", "1 where the driver still shows what a worker says it has released; see "
              "VramBrokerUnderRelease.", "short", [(highest("worker_under_released", worker, WORKER), "{{worker}}")]),
        graph("Overdue", "Layers held above targets past their deadline; see VramBrokerRevocationStuck.", "bytes",
              [(total("worker_overdue_bytes", worker, WORKER), "{{worker}}")], stacked=True),
        graph("On record only", "Charged from the last broker's record until the worker attaches again; see "
              "VramBrokerWorkerNotBack.", "bytes", [(total("worker_recorded_bytes", worker, WORKER), "{{worker}}")],
              stacked=True),
        graph("Pinned host memory", "Host memory that workers have pinned, and may pin. Pinned beyond what is allowed: a worker "
              "began without a broker, or does not heed it.", "bytes",
              [(total("host_pinned_bytes", worker, WORKER), "{{worker}}: pinned"),
               (total("host_pin_allowance_bytes", worker, WORKER), "{{worker}}: allowed")]),
        graph("Budgets of pinned host memory", "What workers may pin together, of the machine (/) and of each container's "
              "limit, beside what is pinned in all. Full: later workers copy from pageable memory, at a lower link rate.",
              "bytes", [(highest("host_pin_budget_bytes", "instance, domain", BROKER), "{{domain}}: budget"),
                        (total("host_pinned_bytes", "instance", BROKER), "pinned")]),
        sheet("Workers", "Where each worker and driver says that it runs (the labels are called exported_ where the scrape adds "
              "its own of the same names). An empty row: POD_NAME, POD_NAMESPACE and CONTAINER_NAME are not in its environment.",
              "short", [(None, f"vram_broker_worker_info{{{WORKER}}}")], device=parts.CHOSEN,
              keys={"instance": "Broker", "worker": "Worker", "pod": "Pod", "namespace": "Namespace",
                    "container": "Container", "exported_pod": "Worker's pod", "exported_namespace": "Worker's namespace",
                    "exported_container": "Worker's container"}, width=12, height=8),
    ]


def build():
    more = [query_variable("worker", "Worker", "A worker's name",
                           f"label_values(vram_broker_component_charge_bytes{{{parts.DEVICE}}}, worker)"),
            query_variable("pipeline", "Pipeline", "A pipeline of which runs are declared",
                           f"label_values(vram_broker_runs{{{BROKER}}}, pipeline)")]
    return (Board("workers", "VRAM broker: workers", "Pipelines and workers: what was kept of each, for what, at what gain.",
                  more_variables=more)
            .row("Pipelines", *pipelines()).row("What was kept", *kept()).row("What was learned", *learned())
            .row("Workers", *workers()))
