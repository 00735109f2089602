"""Experiments of the papers, one project per folder. They import the package; it never imports them."""
