// Measures the page in the frame, and leaves what it found as JSON.
addEventListener('load', () => {
  const frame = document.getElementById('page');
  const page = frame.contentDocument;
  const style = (node) => frame.contentWindow.getComputedStyle(node);
  const all = (selector, within = page) => [...within.querySelectorAll(selector)];
  all('details').forEach((one) => (one.open = true));

  const widths = {};
  for (const width of [320, 360, 768, 1280]) {
    frame.style.width = `${width}px`;
    const root = page.documentElement;
    const boxes = all('svg').map((svg) => svg.getBoundingClientRect());
    widths[width] = {
      overflow: root.scrollWidth - root.clientWidth,
      charts: boxes.length,
      empty: boxes.filter((box) => box.width < 20 || box.height < 10).length,
    };
  }

  const cell = (node) => ({
    text: node.textContent.trim(),
    values: all('data', node).map((data) => data.value),
    // The part of the chart's width that its bar takes.
    bar: all('rect.value', node).map(
      (bar) => bar.getBoundingClientRect().width /
        bar.ownerSVGElement.getBoundingClientRect().width,
    ),
  });
  const tables = all('table').map((table) => ({
    section: table.closest('section')?.id ?? '',
    kind: table.className,
    caption: table.caption?.textContent ?? '',
    rows: all('tbody tr', table).map((row) => [...row.cells].map(cell)),
    heads: all('th', table).length,
    scoped: all('th[scope]', table).length,
    // By the keyboard, a box is scrolled if it has the focus.
    reachable: table.parentElement.tabIndex === 0,
  }));

  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => {
    const linear = colour.slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(style(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let contrast = { ratio: 21, text: '' };
  for (const node of all('body *')) {
    const text = [...node.childNodes].find((one) => one.nodeType === 3 && one.data.trim());
    if (!text) continue;
    const ink = node.namespaceURI.endsWith('svg') ? style(node).fill : style(node).color;
    const [low, high] = [luminance(parts(ink)), luminance(behind(node))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < contrast.ratio) contrast = { ratio, text: text.data.trim() };
  }

  const probe = {
    title: page.title,
    widths,
    tables,
    contrast,
    background: luminance(behind(page.body)),
    scripts: all('script').length,
    skip: page.querySelector(page.querySelector('.skip').getAttribute('href'))?.tagName,
    unnamed: all('svg').filter((svg) => !svg.ariaLabel && svg.ariaHidden !== 'true').length,
    viewport: page.querySelector('meta[name=viewport]')?.content,
    broken: all('nav a').filter((a) => !page.querySelector(a.getAttribute('href'))).length,
  };
  document.getElementById('probe').textContent = JSON.stringify(probe);
  // That messages of the console are seen.
  console.log('the page was probed');
});
