// Stacked bars over time: a bar per step, a part per group, and what there was as a line above.

import { keep, make, setText } from "../dom.js";
import { describe, draw, makePicture, set } from "./svg.js";
import { marksOf, scaleOf } from "./time.js";

const HEIGHT = 220;
const BOTTOM = 22;
const LEFT = 44;
const GAP_OF_MARKS = 80;

/** `show` gets `from`, `to`, `step`, `bars` of (`at`, `parts` of (`key`, `kind`, `value`, `text`), `whole` or null), and `text`. */
export function makeBars() {
  const lines = draw("g", { class: "marks" });
  const marks = draw("g", { class: "marks" });
  const columns = draw("g");
  const whole = draw("path", { class: "whole" });
  let shown = null;
  const picture = makePicture("stacks", paint);
  picture.element.append(lines, marks, columns, whole);

  function paint(width) {
    if (shown === null) return;
    const { from, to, step, bars, text } = shown;
    const top = niceTop(Math.max(...bars.map(({ parts, whole: all }) => Math.max(all ?? 0, sumOf(parts))), 0));
    const x = scaleOf(from, to, LEFT, width - 4);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 10);
    const wide = Math.max(1, (x(from + step) - x(from)) * 0.82);
    describe(picture.element, HEIGHT, text);
    keep(lines, [0, 0.5, 1].map((part) => ({ part })), ({ part }) => part, newLine, (element, { part }) => {
      set(element.firstElementChild, { x1: LEFT, x2: width, y1: y(part * top), y2: y(part * top) });
      set(element.lastElementChild, { x: LEFT - 6, y: y(part * top) + 4 });
      setText(element.lastElementChild, shortOf(part * top));
    });
    keep(marks, marksOf(from, to, Math.max(2, (width - LEFT) / GAP_OF_MARKS)), (mark) => mark.at, () => draw("text", { "text-anchor": "middle" }), (element, mark) => {
      set(element, { x: Math.min(width - 20, Math.max(LEFT, x(mark.at))).toFixed(1), y: HEIGHT - 5 });
      setText(element, mark.text);
    });
    keep(columns, bars, (bar) => bar.at, () => draw("g"), (group, bar) => paintBar(group, bar, { x, y, wide }));
    const known = bars.filter((bar) => bar.whole !== null);
    set(whole, { d: known.map((bar) => `M${x(bar.at).toFixed(1)} ${y(bar.whole).toFixed(1)}h${wide.toFixed(1)}`).join("") });
  }

  return {
    element: make("div", "chart", picture.element),
    show(found) {
      shown = found;
      picture.again();
    },
    close: picture.close,
  };
}

function paintBar(group, bar, { x, y, wide }) {
  let below = 0;
  keep(group, bar.parts.filter((part) => part.value > 0), (part) => part.key, () => draw("rect", {}, draw("title")), (rect, part) => {
    const top = y(below + part.value);
    set(rect, { class: `bar ${part.kind}`, x: x(bar.at).toFixed(1), y: top.toFixed(1), width: wide.toFixed(1), height: Math.max(0.5, y(below) - top).toFixed(1) });
    setText(rect.firstElementChild, part.text);
    below += part.value;
  });
}

const newLine = () => draw("g", {}, draw("line"), draw("text", { "text-anchor": "end" }));
const sumOf = (parts) => parts.reduce((sum, part) => sum + part.value, 0);

/** The next of 1, 2, 5, 10, ... above a value. */
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

const shortOf = (value) => (value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${+value.toPrecision(2)}`);
