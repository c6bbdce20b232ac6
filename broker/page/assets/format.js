// Figures and elements. Everything that comes from the broker goes into text nodes, never into markup.

const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

export function bytes(value) {
  const amount = Number(value);
  for (const [unit, size] of UNITS) {
    if (Math.abs(amount) >= size) return `${(amount / size).toFixed(unit === "GiB" ? 2 : 1)} ${unit}`;
  }
  return `${amount} B`;
}

export function seconds(value) {
  const amount = Math.abs(value);
  if (amount < 5e-7) return "0 s";
  if (amount < 0.0995) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (amount < 600) return `${value.toFixed(amount < 10 ? 2 : amount < 100 ? 1 : 0)} s`;
  return `${Math.round(value / 60)} min`;
}

export function age(milliseconds) {
  const whole = Math.max(0, Math.round(milliseconds / 1000));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
}

// "1.500s" of the broker, in seconds.
export const duration = (text) => (text ? Number.parseFloat(text) : 0);

export const layers = (count) => (count === 1 ? "1 layer" : `${count} layers`);

export function clock(time, fine = false) {
  const two = (number) => String(number).padStart(2, "0");
  const date = new Date(time);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return fine ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

// "DECISION_KIND_LOAD_AHEAD" -> "load ahead".
export function word(name, prefix) {
  const text = String(name);
  return (text.startsWith(prefix) ? text.slice(prefix.length) : text).toLowerCase().replaceAll("_", " ");
}

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Rows of cells; a cell is a text, or {text, className}. Only what differs is touched, so that a
// selection stays and a reader of the screen is not told the same again.
export function fillRows(body, rows, columns) {
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  while (body.rows.length < rows.length) body.append(element("tr"));
  rows.forEach((cells, number) => {
    const row = body.rows[number];
    cells.forEach((cell, column) => {
      const { text, className = "" } = typeof cell === "object" ? cell : { text: cell };
      const node = row.cells[column] ?? row.appendChild(element("td"));
      const name = `${columns[column]} ${className}`.trim();
      if (node.className !== name) node.className = name;
      setText(node, String(text));
    });
  });
}

// The classes of a table's columns, from its head.
export const columnsOf = (table) => [...table.tHead.rows[0].cells].map((cell) => cell.className);
