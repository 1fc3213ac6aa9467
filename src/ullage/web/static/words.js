// Amounts as people read them. Fields of the API carry their unit in the name; so do these functions.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const short = (number) => String(Number(number.toFixed(1)));

/** Cores or cards of thousandths: `12` or `0.5`. */
export const ofMilli = (milli) => short(milli / 1000);

function unitOf(bytes) {
  let power = 0;
  while (power < UNITS.length - 1 && bytes >= 1024 ** (power + 1)) power += 1;
  return power;
}

export function ofBytes(bytes) {
  const power = unitOf(bytes);
  return `${short(bytes / 1024 ** power)} ${UNITS[power]}`;
}

/** `40 / 256 GiB`: both in the unit that suits the whole. */
export function partOfBytes(part, whole) {
  const power = unitOf(whole);
  return `${short(part / 1024 ** power)} / ${short(whole / 1024 ** power)} ${UNITS[power]}`;
}

export const partOfMilli = (part, whole) => `${ofMilli(part)} / ${ofMilli(whole)}`;

/** A part of one, to four places: `0.5`, `0.3333`. */
export const fraction = (part) => String(Number(part.toFixed(4)));

/** A fraction in percent, finer where it is small. */
export function percent(fraction) {
  const value = fraction * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** How long ago, in its two largest units. */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** Returns the idle cards, the fragmentation, and the number of fitting requests for whole cards. */
export function roomOf({ idle_milli: idle, fragments_milli: fragments, missing, fits }) {
  const unknown = `${counted(missing, "more task")} must arrive before fragmentation is estimated`;
  const useless = idle ? `${percent(fragments / idle)} of it no likely task can use` : "";
  const sizes = Object.entries(fits).map(([cards, units]) => `${units} x ${cards}`);
  const parts = [`idle: ${ofMilli(idle)} cards`, fragments === null ? unknown : useless];
  if (sizes.length) parts.push(`room for ${sizes.join(", ")} whole cards`);
  return parts.filter(Boolean).join(" · ");
}

/** Returns a dash for a missing text. */
export const orDash = (text) => text || "–";
