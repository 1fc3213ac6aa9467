// An address that this page does not have.

import { make, setAttribute } from "../dom.js";
import { hrefOf } from "../router.js";

export const titleOf = () => "No such page";

export function open(root) {
  const link = make("a", "", "Go to the overview");
  setAttribute(link, "href", hrefOf("overview"));
  root.append(make("section", "", make("p", "none", "This address names no view of this page. ", link, ".")));
  return {};
}
