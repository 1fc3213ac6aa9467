// Asks for something again and again while a view is open: never twice at once, and not more often than its gap.

/** `load(signal)` fetches, `take` draws what came, `fail` shows an error; after `close` nothing is drawn any more. */
export function makeLoader(load, take, fail, gapMs = 1_500) {
  let stop = null;
  let timer = null;
  let ended = 0;
  let closed = false;

  async function run() {
    timer = null;
    const mine = (stop = new AbortController());
    try {
      const found = await load(mine.signal);
      if (mine === stop && !closed) take(found);
    } catch (error) {
      if (mine === stop && !closed && error.name !== "AbortError") fail(error);
    }
    if (mine === stop) stop = null;
    ended = performance.now();
  }

  return {
    /** Asks when the gap is over, unless a request is under way. */
    soon() {
      if (!stop && timer === null && !closed) timer = setTimeout(run, Math.max(0, ended + gapMs - performance.now()));
    },
    /** Asks at once; an older request counts no more. */
    now() {
      stop?.abort();
      clearTimeout(timer);
      return run();
    },
    close() {
      closed = true;
      stop?.abort();
      clearTimeout(timer);
    },
  };
}
