// The page is complete without this script. It asks for the page again when the server
// says that it has changed, and replaces what differs. It never reads a value: fences
// are greater than what a number can hold.
"use strict";

(() => {
  const page = document.body.dataset.page;
  const live = document.getElementById("live");
  const ahead = Date.now() - Date.parse(document.body.dataset.now); // of the server's clock
  let source = null, busy = false, again = false, retry = 0;

  const say = (text, bad) => {
    if (live.textContent !== text) live.textContent = text;
    live.classList.toggle("bad", Boolean(bad));
  };

  // span is the function of the same name in text.go.
  const span = (seconds) => {
    const s = Math.floor(Math.abs(seconds));
    if (s < 120) return s + " s";
    if (s < 7200) return Math.floor(s / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h";
    return Math.floor(s / 86400) + " d";
  };

  const tick = () => {
    const now = Date.now() - ahead;
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (now - Date.parse(time.dateTime)) / 1000;
      let text = seconds < 0 ? "in " + span(seconds) : span(seconds) + " ago";
      if (Math.abs(seconds) < 1) text = "now";
      if ("lasts" in time.dataset) text = span(seconds);
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // id is what an element is about. A form is about its action, unless it says more.
  const id = (node) => {
    if (node.nodeType !== 1) return null;
    return node.getAttribute("data-id") ?? (node.matches(".act") ? node.querySelector("[name=action]").value : null);
  };
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && id(a) === id(b);

  // A form in use has the focus, or what somebody has typed.
  const typed = new WeakSet();
  document.addEventListener("input", (e) => typed.add(e.target.form));
  const inUse = (form) => typed.has(form) || form.contains(document.activeElement);

  // drop removes a node that the page does not have any more, and returns the next one. What has a
  // form in use stays, and says that it is outdated: nobody loses what is half written, and nobody
  // sends it about something else.
  const drop = (gone) => {
    const next = gone.nextSibling;
    if (gone.nodeType === 1 && [gone, ...gone.querySelectorAll("form")].some((f) => f.nodeName === "FORM" && inUse(f))) {
      gone.setAttribute("data-outdated", "");
    } else {
      gone.remove();
    }
    return next;
  };

  // morph makes an element what another is, and keeps what is the same: the focus, what
  // was typed, what was opened.
  const morph = (from, to) => {
    if (from.nodeType !== 1) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    if (from.isEqualNode(to)) return;
    for (const { name, value } of [...to.attributes]) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
    }
    if (from.nodeName === "INPUT" || from.nodeName === "SELECT") return;
    if (from.nodeName === "FORM" && inUse(from)) return; // somebody is about to send what it says now
    const named = new Map();
    for (const child of from.childNodes) if (id(child) !== null) named.set(id(child), child);
    const wantedIds = new Set([...to.childNodes].map(id));
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      while (at && id(at) !== null && !wantedIds.has(id(at))) at = drop(at);
      let have = id(wanted) !== null ? named.get(id(wanted)) : at;
      if (have && same(have, wanted)) {
        named.delete(id(wanted));
        if (have === at) at = at.nextSibling; else from.insertBefore(have, at);
        morph(have, wanted);
      } else {
        from.insertBefore(wanted, at);
        if (at && id(at) === null && id(wanted) === null) at = drop(at);
      }
    }
    while (at) at = drop(at);
  };

  const refresh = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.redirected || !(answer.headers.get("Content-Type") || "").startsWith("text/html")) throw new Error("reload");
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      morph(document.getElementById("content"), next.getElementById("content"));
      tick();
      if (source && source.readyState === EventSource.OPEN) say("live");
    } catch (err) {
      say("not live: the server does not answer", true);
    }
    busy = false;
    if (again) {
      again = false;
      refresh();
    }
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("events?page=" + encodeURIComponent(page));
    source.addEventListener("ready", () => {
      retry = 0;
      say("live");
      refresh(); // what has changed since the page was served
    });
    source.addEventListener("changed", refresh);
    source.onerror = () => {
      say("not live: connecting again", true);
      if (source && source.readyState === EventSource.CLOSED) { // refused: too many tabs, or a login is needed
        close();
        retry = Math.min(retry + 1, 6);
        setTimeout(open, 5000 * retry);
      }
    };
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  // A hidden tab needs no connection: browsers have six for each server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
    } else {
      open();
    }
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (e) => { if (e.persisted) open(); });

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.nodeName)) return;
    const search = document.querySelector("[data-search]");
    const go = (selector) => { const a = document.querySelector(selector); if (a) a.click(); };
    if (e.key === "/" && search) {
      e.preventDefault();
      search.focus();
      search.select();
    } else if (e.key === "n") go(".pager [rel=next]");
    else if (e.key === "p") go(".pager [rel=prev]");
  });

  setInterval(tick, 1000);
  tick();
  open();
})();
