"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const charts = [...document.querySelectorAll("svg[data-chart]")];

  function say(value) {
    return value === 0 || value >= 100 ? String(Math.round(value)) : String(+value.toPrecision(3));
  }

  function seconds(value) {
    if (value >= 1) return say(value) + " s";
    return value >= 1e-3 ? say(value * 1e3) + " ms" : say(value * 1e6) + " µs";
  }

  function lines(chart, bin) {
    return (data.charts[chart] || []).map(([name, unit, values]) => {
      const value = values[bin];
      if (value === undefined || value === null) return null;
      return name + "  " + (unit === "s" ? seconds(value) : say(value) + unit);
    }).filter(Boolean);
  }

  function leave() {
    tip.style.display = "none";
    for (const line of document.querySelectorAll(".cross.on")) line.classList.remove("on");
  }

  function move(svg, event) {
    const { chart, left, right, end } = svg.dataset;
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const part = (x - left) / (right - left);
    if (part < 0 || part > 1) return leave();
    const time = part * end;
    for (const other of charts) {
      const place = +other.dataset.left + part * (other.dataset.right - other.dataset.left);
      const line = other.querySelector(".cross");
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      line.classList.add("on");
    }
    const bin = Math.floor(time / data.width);
    tip.textContent = [time.toFixed(data.digits) + " s", ...lines(chart, bin)].join("\n");
    tip.style.display = "block";
    const room = innerWidth - tip.offsetWidth - 8;
    tip.style.left = Math.min(event.clientX + 16, room) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  }

  for (const svg of charts) {
    svg.addEventListener("pointermove", (event) => move(svg, event));
    svg.addEventListener("pointerleave", leave);
  }
  document.documentElement.className = "ready";
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details.print")) one.open = true;
  });
})();
