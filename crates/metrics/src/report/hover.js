// Values under the pointer. Without this script each point still has its title.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    tip.hidden = false;
    const left = Math.min(event.pageX + 16, scrollX + innerWidth - tip.offsetWidth - 12);
    tip.style.left = Math.max(scrollX + 4, left) + "px";
    tip.style.top = event.pageY + 16 + "px";
  };
  const add = (parent, tag, text, name) => {
    const child = document.createElement(tag);
    child.textContent = text;
    if (name) child.className = name;
    return parent.appendChild(child);
  };

  // Plots: all curves at the load nearest to the pointer, from the highest value down.
  for (const svg of document.querySelectorAll(".plot svg")) {
    const points = [...svg.querySelectorAll(".pt")];
    points.forEach((p) => p.querySelector("title").remove());
    if (!points.length) continue;
    const cross = svg.appendChild(document.createElementNS(svg.namespaceURI, "line"));
    cross.setAttribute("class", "cross");
    svg.addEventListener("pointerleave", () => { hide(); cross.removeAttribute("y2"); });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const distance = (p) => Math.abs(p.dataset.x - x);
      const nearest = points.reduce((a, b) => (distance(b) < distance(a) ? b : a));
      const here = points.filter((p) => p.dataset.x === nearest.dataset.x);
      here.sort((a, b) => a.dataset.y - b.dataset.y);
      for (const [key, value] of [["x1", nearest.dataset.x], ["x2", nearest.dataset.x], ["y1", 34], ["y2", 348]])
        cross.setAttribute(key, value);
      tip.replaceChildren();
      add(tip, "b", nearest.dataset.at);
      for (const p of here) {
        const line = add(tip, "div", "", [...p.classList].find((c) => /^c\d$/.test(c)));
        add(line, "i", "");
        add(line, "em", p.dataset.name);
        add(line, "strong", p.dataset.value);
        add(line, "span", p.dataset.range + (p.dataset.note ? "; " + p.dataset.note : ""));
      }
      show(event);
    });
  }

  for (const bar of document.querySelectorAll("[data-tip]")) {
    bar.querySelector("title").remove();
    bar.addEventListener("pointerleave", hide);
    bar.addEventListener("pointermove", (event) => { tip.textContent = bar.dataset.tip; show(event); });
  }

  // Paper cannot unfold.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
