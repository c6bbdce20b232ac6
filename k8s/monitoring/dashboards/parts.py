"""What the dashboards have in common: selectors, variables, links, and the panels' looks."""
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as styles
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# The labels cluster and namespace come from the scrape's configuration: where they are absent, ".*" of "All" fits.
BROKER = 'cluster=~"$cluster",namespace=~"$namespace",instance=~"$instance"'
DEVICE = BROKER + ',UUID=~"$device"'
WORKER = BROKER + ',worker=~"$worker"'
COMPONENT = DEVICE + ',worker=~"$worker"'
RATE = "[$__rate_interval]"

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

# Told apart by those who see fewer colours, too.
BLUE, SKY, GREEN, YELLOW, ORANGE, PINK, GREY, RED = (
    "#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#CC79A7", "#999999", "#D55E00")


def rate(name: str, by: str, selector: str, more: str = "") -> str:
    return f"sum by ({by}) (rate(vram_broker_{name}{{{selector}{more}}}{RATE}))"


def total(name: str, by: str, selector: str, more: str = "") -> str:
    return f"sum by ({by}) (vram_broker_{name}{{{selector}{more}}})"


def highest(name: str, by: str, selector: str, more: str = "") -> str:
    return f"max by ({by}) (vram_broker_{name}{{{selector}{more}}})"


def quantiles(name: str, by: str, selector: str):
    """The targets of a histogram's median, 90th and 99th of 100."""
    labels = f"{by}, le" if by else "le"
    of = f"sum by ({labels}) (rate(vram_broker_{name}_bucket{{{selector}}}{RATE}))"
    series = f"{{{{{by}}}}} " if by else ""
    return [(f"histogram_quantile({q}, {of})", f"{series}p{round(100 * q)}") for q in (0.5, 0.9, 0.99)]


def page_link(device: str) -> dashboard.DashboardLink:
    """To the broker's own page, with this device and the dashboard's time."""
    return (dashboard.DashboardLink("The broker's page of this time").type(model.DashboardLinkType.LINK)
            .url(f"${{page}}/?device={device}&from=${{__from}}&to=${{__to}}").target_blank(True))


# A value for page_link: the chosen device; that of the series; that of a table's row.
CHOSEN, OF_SERIES, OF_ROW = "${device}", "${__field.labels.UUID}", "${__data.fields.UUID}"


def target(expr: str, legend: str, ref: str, instant: bool = False, as_table: bool = False):
    query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref).datasource(SOURCE)
    query = query.instant() if instant else query.range()
    return query.format(PromQueryFormat.TABLE) if as_table else query


def with_targets(panel, targets, instant=False, as_table=False):
    for ref, (expr, legend) in zip("ABCDEFGHIJKLMNOP", targets, strict=False):
        panel = panel.with_target(target(expr, legend, ref, instant, as_table))
    return panel


def steps(*pairs) -> dashboard.ThresholdsConfig:
    """Colours from values on: steps((None, "green"), (60, "red"))."""
    return (dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
            .steps([model.Threshold(value=value, color=color) for value, color in pairs]))


def names(values: dict) -> list:
    """Words for values."""
    options = {key: model.ValueMappingResult(text=text, color=color, index=index)
               for index, (key, (text, color)) in enumerate(values.items())}
    return [model.ValueMap(options=options)]


def colored(name: str, color: str):
    return name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})]


def as_limit(name: str, color: str = RED):
    """A dashed line that is not part of a stack."""
    return name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color}),
                  model.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "limit"}),
                  model.DynamicConfigValue("custom.fillOpacity", 0),
                  model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})]


def graph(title: str, description: str, unit: str, targets, *, device: str = CHOSEN, stacked: bool = False,
          bars: bool = False, overrides=(), thresholds=None, width: int = 12, height: int = 8):
    panel = (timeseries.Panel().title(title).description(description).unit(unit).datasource(SOURCE)
             .data_links([page_link(device)]).span(width).height(height).min(0)
             .line_width(1).fill_opacity(70 if stacked else 10)
             .show_points(styles.VisibilityMode.AUTO if not stacked else styles.VisibilityMode.NEVER)
             .line_interpolation(styles.LineInterpolation.STEP_AFTER if stacked else styles.LineInterpolation.LINEAR)
             .legend(common.VizLegendOptions().show_legend(True).display_mode(styles.LegendDisplayMode.TABLE)
                     .placement(styles.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"]))
             .tooltip(common.VizTooltipOptions().mode(styles.TooltipDisplayMode.MULTI)
                      .sort(styles.SortOrder.DESCENDING)))
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(styles.StackingMode.NORMAL).group("A"))
    if bars:
        panel = panel.draw_style(styles.GraphDrawStyle.BARS)
    if thresholds is not None:
        panel = panel.thresholds(thresholds).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(styles.GraphThresholdsStyleMode.DASHED))
    for name, properties in overrides:
        panel = panel.override_by_name(name, properties)
    return with_targets(panel, targets)


def figure(title: str, description: str, unit: str, expr: str, *, device: str = CHOSEN, legend: str = "",
           thresholds=None, mappings=None, text: bool = False, width: int = 4, height: int = 4):
    """One value, the latest; `text`: the name of its series instead."""
    panel = (stat.Panel().title(title).description(description).unit(unit).datasource(SOURCE)
             .data_links([page_link(device)]).span(width).height(height)
             .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
             .graph_mode(styles.BigValueGraphMode.NONE).color_mode(styles.BigValueColorMode.VALUE)
             .text_mode(styles.BigValueTextMode.NAME if text else styles.BigValueTextMode.AUTO)
             .thresholds(thresholds or steps((None, "text"))))
    if mappings is not None:
        panel = panel.mappings(mappings)
    return with_targets(panel, [(expr, legend)], instant=True)


def sheet(title: str, description: str, unit: str, columns, *, device: str, keys: dict, units=None,
          mappings=None, width: int = 24, height: int = 9):
    """A table: a row for each set of the labels `keys` (with their headings), a column for each (heading, query).

    A heading None hides a column whose labels are all that it has to say.
    """
    values = [f"Value #{ref}" for ref, _ in zip("ABCDEFGHIJKLMNOP", columns, strict=False)]
    if len(columns) == 1:
        values = ["Value"]  # as Grafana calls it where there is no other
    headings = {value: heading for value, (heading, _) in zip(values, columns, strict=True)}
    hidden = ["Time", "__name__", "job", *(value for value, heading in headings.items() if heading is None)]
    order = {name: index for index, name in enumerate([*keys, *values])}
    panel = (table.Panel().title(title).description(description).unit(unit).datasource(SOURCE)
             .data_links([page_link(device)]).span(width).height(height).filterable(True)
             .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
             .with_transformation(model.DataTransformerConfig(id_val="organize", options={
                 "excludeByName": {name: True for name in hidden},
                 "renameByName": keys | {value: heading for value, heading in headings.items() if heading},
                 "indexByName": order})))
    for heading, of in (units or {}).items():
        panel = panel.override_by_name(heading, [model.DynamicConfigValue("unit", of)])
    for heading, words in (mappings or {}).items():
        panel = panel.override_by_name(heading, [model.DynamicConfigValue("mappings", words)])
    return with_targets(panel, [(query, "") for _, query in columns], instant=True, as_table=True)
