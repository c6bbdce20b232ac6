"""A dashboard: its variables and annotations, and panels that get their numbers and places one after another."""
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

import parts

TAG = "vram-broker"
PAGE = "http://localhost:9465"
ALL = model.VariableOption(selected=True, text="All", value="$__all")


class Annotation(model.AnnotationQuery):
    """With the words of Grafana's Prometheus source, which the SDK's type leaves out."""

    def __init__(self, title: str, **fields):
        super().__init__(**fields)
        self.title = title

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"titleFormat": self.title, "tagKeys": "instance,UUID"}


class Built(Builder[object]):
    """A finished part where the SDK wants a builder."""

    def __init__(self, part: object):
        self.part = part

    def build(self):
        return self.part


def annotation(name: str, expr: str, title: str, color: str) -> Built:
    return Built(Annotation(title, name=name, expr=expr, icon_color=color, datasource=parts.SOURCE, enable=True))


def query_variable(name: str, label: str, description: str, query: str, every: bool = True):
    variable = (dashboard.QueryVariable(name).label(label).description(description).query(query)
                .datasource(parts.SOURCE).refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
                .sort(model.VariableSort.ALPHABETICAL_ASC).include_all(every).multi(every))
    return variable.all_value(".*").current(ALL) if every else variable


def variables(every_device: bool):
    """Data source, cluster, namespace, instance, device, and where the broker's page is."""
    build = "vram_broker_build_info"
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        query_variable("cluster", "Cluster", "A label that the scrape's configuration adds, or nothing",
                       f"label_values({build}, cluster)"),
        query_variable("namespace", "Namespace", "Of the broker, where the scrape's configuration adds the label",
                       f'label_values({build}{{cluster=~"$cluster"}}, namespace)'),
        query_variable("instance", "Broker", "Where a broker's metrics are scraped",
                       f'label_values({build}{{cluster=~"$cluster",namespace=~"$namespace"}}, instance)'),
        query_variable("device", "Device", "UUID of the GPU or MIG instance",
                       f"label_values(vram_broker_device_capacity_bytes{{{parts.BROKER}}}, UUID)", every_device),
    ]


def page_variable():
    return (dashboard.TextBoxVariable("page").label("Broker's page")
            .description("What --page-address of the chosen broker is reached at from this browser")
            .default_value(PAGE).current(model.VariableOption(selected=True, text=PAGE, value=PAGE)))


def annotations():
    """Of what somebody has to look at only: refusals, and revocations past their deadline."""
    return [
        annotation("Refusals", "sum by (instance, UUID) (increase(vram_broker_decisions_total"
                   f'{{{parts.DEVICE},kind="refusal"}}[1m])) > 0', "A use was refused: it cannot fit", parts.RED),
        annotation("Overdue revocations", "sum by (instance, UUID) (increase(vram_broker_overdue_targets_total"
                   f"{{{parts.DEVICE}}}[1m])) > 0", "Layers asked back were not released by their deadline",
                   parts.ORANGE),
    ]


class Board:
    def __init__(self, name: str, title: str, description: str, *, every_device: bool = True, more_variables=(),
                 annotated: bool = True):
        self.name = name
        self._ids = 0
        self._board = (
            dashboard.Dashboard(title).uid(f"{TAG}-{name}").description(description).tags([TAG])
            .time("now-1h", "now").refresh("30s").timezone("browser").readonly()
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .variables([*variables(every_device), *more_variables, page_variable()])
            .annotations(annotations() if annotated else [])
            .link(dashboard.DashboardLink("VRAM broker").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
                  .include_vars(True).keep_time(True)))

    def row(self, title: str, *panels) -> "Board":
        self._board.with_row(dashboard.Row(title).id(self._next_id()))
        for panel in panels:
            self._board.with_panel(panel.id(self._next_id()))
        return self

    def build(self) -> model.Dashboard:
        return self._board.build()

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids
