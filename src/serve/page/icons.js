// icons.js - the icons of buttons: strokes in a 24 × 24 square, in the colour of the surrounding text.
const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M5.5 11.5L12 5l6.5 6.5",
  stop: "M7 7h10v10H7zM9 9h6v6H9zM11 11h2v2h-2z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M19 12a7 7 0 1 1-2.1-5M19 4v4.5h-4.5",
  left: "M14.5 6l-6 6 6 6",
  right: "M9.5 6l6 6-6 6",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 5.8v4.4M9 13.8v4.4",
  grid: "M5 5h4v4H5zM15 5h4v4h-4zM5 15h4v4H5zM15 15h4v4h-4zM10.5 10.5h3v3h-3z",
  tokens: "M4 6h6M13 6h7M4 12h9M16 12h4M4 18h4M11 18h9",
  down: "M12 5v14M5.5 12.5L12 19l6.5-6.5",
  upload: "M12 16V5M7 10l5-5 5 5M5 20h14",
  download: "M12 4v11M7 10l5 5 5-5M5 20h14",
  help: "M9 9.5a3 3 0 1 1 4.2 2.7c-.8.4-1.2 1-1.2 1.8M12 17.4v.1",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  go: "M5 12h14M13 6l6 6-6 6",
  wide: "M14 5h5v5M10 19H5v-5M19 5l-6 6M5 19l6-6",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
