// The map of the service's pages: the shared map, over local tiles if the settings name a file.

import { ask } from "./api.js";
import { isDark } from "./colours.js";
import { make } from "./dom.js";
import { GeoMap } from "./shared/map.js";

export { boxAround, line, point } from "./shared/map.js";

class PageMap extends GeoMap {
  /** Shows the map in a place of the page; it keeps its view from place to place. */
  attach(place) {
    super.attach(place);
    this.started ??= this.localTiles();
  }

  /** The width of a card that covers the left of the map, in pixels. */
  covered() {
    const card = this.element.parentElement?.parentElement
      ?.querySelector(":scope > .card:not([hidden])")
      ?.getBoundingClientRect();
    const { left, top, bottom, width } = this.element.getBoundingClientRect();
    return card && card.top < bottom && card.bottom > top && card.width < width / 2 ? card.right - left : 0;
  }

  /** Draws again after the switch between light and dark. */
  restyle() {
    this.draw();
    this.map?.setStyle(this.basemap(), { diff: false });
  }

  paint(pen, colour) {
    super.paint(pen, colour);
    const zoom = Math.log2((2 * Math.PI * this.view.scale) / 512);
    this.map?.jumpTo({ center: [this.centre[0], Math.max(-85, Math.min(85, this.centre[1]))], zoom });
  }

  /** Draws a PMTiles file of the service under everything; only then is MapLibre loaded. */
  async localTiles() {
    const settings = await ask("/api/settings").catch(() => null);
    if (!settings?.tiles) return;
    const [maplibre, { layers, namedFlavor }] = await Promise.all([
      import("./vendor/maplibre-gl.mjs"),
      import("./vendor/basemaps.mjs"),
      loaded("script", { src: new URL("./vendor/pmtiles.js", import.meta.url).href }),
      loaded("link", { rel: "stylesheet", href: new URL("./vendor/maplibre-gl.css", import.meta.url).href }),
    ]);
    maplibre.addProtocol("pmtiles", new globalThis.pmtiles.Protocol().tile);
    this.basemap = () => ({
      version: 8,
      sources: { tiles: { type: "vector", url: `pmtiles://${location.origin}/api/tiles` } },
      // Icons would need a picture from elsewhere; names are drawn with the fonts of this computer.
      layers: layers("tiles", namedFlavor(isDark() ? "dark" : "light"), { lang: "en" }).map((layer) => ({
        ...layer,
        layout: withoutIcon(layer.layout),
      })),
    });
    const under = make("div", { class: "tiles", "aria-hidden": "true" });
    this.element.prepend(under);
    try {
      this.map = new maplibre.Map({
        container: under,
        style: this.basemap(),
        interactive: false,
        attributionControl: { compact: true, customAttribution: "© OpenStreetMap" },
        fadeDuration: 0,
      });
    } catch {
      under.remove(); // this browser offers no WebGL 2: the map stays without tiles
      return;
    }
    this.draw();
  }
}

function withoutIcon(layout = {}) {
  return Object.fromEntries(Object.entries(layout).filter(([name]) => !name.startsWith("icon-")));
}

/** Adds a script or a style sheet to the page, and waits until it is loaded. */
function loaded(tag, attributes) {
  return new Promise((done, failed) => {
    const onerror = () => failed(new Error(`${attributes.src ?? attributes.href} cannot be loaded`));
    document.head.append(make(tag, { ...attributes, onload: () => done(), onerror }));
  });
}

export const map = new PageMap();
