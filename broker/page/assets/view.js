// What the page knows and shows: the newest picture, the device chosen, and times of the broker.

const query = new URLSearchParams(location.search);
const timeIn = (name) => (/^\d{1,16}$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);

export const view = {
  picture: null,
  // Of the newest picture, and of the last sign of life, by this browser's clock.
  pictureAt: 0,
  heardAt: 0,
  // Of the broker's clock against this browser's, in milliseconds.
  offset: 0,
  uuid: query.get("device") ?? "",
  from: timeIn("from"),
  to: timeIn("to"),
};

export const now = () => Date.now() + view.offset;

export function takePicture(picture) {
  view.picture = picture;
  view.pictureAt = Date.now();
  view.offset = Date.parse(picture.time) - view.pictureAt;
}

// The device that is shown. Null: there is none.
export function device() {
  const all = view.picture?.devices ?? [];
  return all.find((one) => one.uuid === view.uuid) ?? all[0] ?? null;
}

// Of another device than the one shown. What no device has any more is of every one.
export function isElsewhere(componentId) {
  const shown = device();
  if (shown?.components.some((one) => one.id === componentId)) return false;
  return view.picture?.devices.some((one) => one !== shown &&
    one.components.some((component) => component.id === componentId)) ?? false;
}

export function remember() {
  const url = new URL(location.href);
  const put = (name, value) => (value === null || value === "" ? url.searchParams.delete(name)
    : url.searchParams.set(name, value));
  put("device", view.uuid);
  put("from", view.from);
  put("to", view.to);
  history.replaceState(null, "", url);
}
