for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const [usual, other] = column === 0 ? ['ascending', 'descending'] : ['descending', 'ascending'];
      const order = head.getAttribute('aria-sort') === usual ? other : usual;
      const descending = order === 'descending';
      heads.forEach(each => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const key = row => row.cells[column].textContent.trim();
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const [p, q] = [parseFloat(x), parseFloat(y)];
        if (column === 0 || (isNaN(p) && isNaN(q))) return descending ? y.localeCompare(x) : x.localeCompare(y);
        if (isNaN(p) || isNaN(q)) return isNaN(p) - isNaN(q);
        return descending ? q - p : p - q;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}
