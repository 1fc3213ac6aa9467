// Lanes over time: a row per thing, a bar from its begin to its end. Used for executors of a session and for sessions.

import { keep, make, setClass, setText } from "../dom.js";
import { age } from "../words.js";
import { describe, draw, makePicture, set } from "./svg.js";
import { marksOf, scaleOf } from "./time.js";

const ROW = 22;
const TOP = 24;
const NARROW = 520;
const GAP_OF_MARKS = 90;
const HALF_LABEL = 32;

/** A chart; `show` gets rows (`key`, `label`, `bars` of `from`, `to`, `kind`, `text`), the span, and the text for those who hear it. */
export function makeLanes() {
  const marks = draw("g", { class: "marks" });
  const lanes = draw("g");
  let shown = null;
  const picture = makePicture("lanes", paint);
  picture.element.append(marks, lanes);
  const list = make("ul", "");
  const words = make("details", "as-text", make("summary", "", "As text"), list);

  function paint(width) {
    if (shown === null) return;
    const { rows, from, to, text } = shown;
    const left = width < NARROW ? 4 : Math.min(190, width * 0.22);
    const place = scaleOf(from, to, left, width - 6);
    const height = TOP + rows.length * (width < NARROW ? ROW + 14 : ROW) + 6;
    describe(picture.element, height, text);
    const shownMarks = marksOf(from, to, Math.max(2, (width - left) / GAP_OF_MARKS)).filter((mark) => place(mark.at) < width - HALF_LABEL);
    keep(marks, shownMarks, (mark) => mark.at, newMark, (element, mark) => {
      set(element, { transform: `translate(${place(mark.at).toFixed(1)} 0)` });
      set(element.firstElementChild, { y1: TOP - 6, y2: height });
      setText(element.lastElementChild, mark.text);
    });
    keep(lanes, rows, (row) => row.key, newLane, (element, row) => paintLane(element, row, { width, left, place, rows }));
  }

  function paintLane(element, row, { width, left, place, rows }) {
    const narrow = width < NARROW;
    const high = narrow ? ROW + 14 : ROW;
    const [label, bars] = element.children;
    set(element, { transform: `translate(0 ${TOP + rows.indexOf(row) * high})` });
    set(label, { x: narrow ? 4 : 0, y: narrow ? 12 : 15 });
    setText(label, cut(row.label, narrow ? width / 7 : left / 7.2));
    keep(bars, row.bars, (bar) => `${bar.from} ${bar.kind}`, () => draw("rect", { rx: 3 }, draw("title")), (rect, bar) => {
      const x = place(Math.max(bar.from, shown.from));
      set(rect, { x: x.toFixed(1), y: narrow ? 17 : 4, width: Math.max(2, place(bar.to) - x).toFixed(1), height: ROW - 8 });
      set(rect, { class: `bar ${bar.kind}` });
      setText(rect.firstElementChild, bar.text);
    });
  }

  return {
    element: make("div", "chart", picture.element, words),
    show(found) {
      shown = found;
      picture.again();
      const texts = found.rows.flatMap((row) => row.bars.map((bar) => `${row.label}: ${bar.text}`));
      keep(list, texts.slice(0, 200), (each) => each, () => make("li"), setText);
    },
    close: picture.close,
  };
}

const newMark = () => draw("g", {}, draw("line"), draw("text", { y: 12, "text-anchor": "middle" }));
const newLane = () => draw("g", {}, draw("text"), draw("g"));

const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.max(3, Math.floor(most) - 1))}…` : text);

/** How long a bar lasts, in words. */
export const lasting = (from, to) => age(to - from);

/** Keys of the colours of a chart: names with the classes of their swatches. */
export function makeKeys(kinds) {
  const keys = Object.entries(kinds).map(([kind, name]) => {
    const swatch = make("span");
    setClass(swatch, `key-bar ${kind}`);
    return make("li", "", swatch, name);
  });
  return make("ul", "legend", ...keys);
}
