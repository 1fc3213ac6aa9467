// Addresses of this page: `#/sessions?queue=a&state=open`, `#/sessions/ID`. Each can be kept, sent and opened again.

/** The parts of an address: the name of the view, what it is about, and its query. */
export function routeOf(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  return { name: name || "overview", id: rest.join("/") || null, query: new URLSearchParams(query) };
}

/** The address of a view. Empty values of the query are left out. */
export function hrefOf(name, id = null, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const path = [name === "overview" ? "" : name, ...(id === null ? [] : [id])].map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Changes the query of the present address; null or an empty text removes a name. It makes no entry in the history. */
export function setQuery(changes) {
  const { name, id, query } = routeOf(location.hash);
  const wanted = hrefOf(name, id, { ...Object.fromEntries(query), ...changes });
  if (wanted === location.hash) return;
  history.replaceState(null, "", wanted);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
