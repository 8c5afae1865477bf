# ruff: noqa: E501
"""The main part of pages that are built as those of known sites. KEPT words belong to the text, and NOISE does not."""

import re

import pytest

from core.knowledge.document import ParseLimits
from core.knowledge.parsing.blocks import render_blocks
from core.knowledge.parsing.html import HtmlReader, parse_html
from core.web_access.main_part import find_main_part

TEXT = "The harbour is deep, and ships of all sizes come in with the tide. "
LINKS = "".join(f"<li><a href=/{at}>NOISE {at}</a></li>" for at in range(9))
NAV = f"<nav><ul>{LINKS}</ul></nav>"
FOOTER = "<footer><p>NOISE of the company</p></footer>"

PAGES = {
    "sphinx": '<div role="navigation">NOISE</div><div class="body" role="main"><section><h1>KEPT1</h1><dl class="py function">'
    f"<dt>KEPT2()</dt><dd><p>KEPT3 {TEXT}</p></dd></dl><div class='admonition note'>KEPT4</div></section></div>",
    "docusaurus": f"<nav>NOISE</nav><aside>NOISE{NAV}</aside><main><article><nav class='theme-doc-breadcrumbs'>NOISE</nav>"
    f"<h1>KEPT1</h1><p>KEPT2 {TEXT}</p></article><div class='tableOfContents'><a href=#a>toc</a></div></main>{FOOTER}",
    "news": f"<header>NOISE</header>{NAV}<div class='cookie-consent'><p>NOISE</p></div><main><article><h1>KEPT1</h1><div>By KEPT2"
    f"</div><p>KEPT3 {TEXT * 5}</p><aside class='related-articles'><a href=/x>NOISE</a></aside><figcaption>KEPT4</figcaption>"
    f"<div class='newsletter-signup'>NOISE</div></article></main>{FOOTER}",
    "shop": f"<header>NOISE</header><div class='breadcrumb'>NOISE</div><div class='product'><h1>KEPT1</h1><div>KEPT2 99 EUR</div>"
    f"<ul class='product-menu'><li>KEPT3 18 V</li></ul><table class='specs'><tr><td>KEPT4 2 kg</td></tr></table><p>{TEXT}</p></div>"
    f"<ul class='related-products'>{LINKS}</ul>{FOOTER}",
    "list of products": f"{NAV}<main><h1>KEPT1</h1>"
    + "".join(f"<a href=/{at}><h2>KEPT{at} drill</h2> 9 EUR</a>" for at in range(2, 9))
    + "</main>",
    "forum": "".join(
        f"<div class='post'><div class='postprofile'><a href=/u>Ann</a></div><div class='content'>KEPT{at} {TEXT}</div></div>"
        for at in range(1, 6)
    ),
    "questions": f"<header>NOISE</header><div id='left-sidebar'>NOISE{NAV}</div><h1>KEPT1</h1><div id='question'><p>KEPT2 {TEXT}</p>"
    f"<pre>KEPT3()</pre></div><div class='answer'><p>KEPT4 {TEXT}</p></div><div id='sidebar'>NOISE</div>",
    "wiki": f"<header>NOISE</header><div class='vector-main-menu'><ul>{LINKS}</ul></div><main><header><h1>KEPT1</h1></header>"
    f"<table class='infobox'><tr><td>KEPT2 5 km</td></tr></table><p>KEPT3 {TEXT}</p><ol class='references'><li><a href=/r>KEPT4"
    "</a></li></ol></main>",
    "repository": f"<header role=banner>NOISE</header><main><table><tr><td><a href=/f>src</a></td></tr></table><article>"
    f"<h1>KEPT1</h1><p>KEPT2 {TEXT}</p><pre>KEPT3</pre></article></main>{FOOTER}",
    "blog": f"<header>NOISE{NAV}</header><main><article class='post'><header><h1>KEPT1</h1><div>KEPT2 of May</div></header><p>KEPT3"
    f" {TEXT}</p></article><ol class='comment-list'><li><article>KEPT4</article></li></ol></main><aside>NOISE</aside>{FOOTER}",
    "names on the body": f"<body class='nav-open has-sidebar'><article class='share'><h1>KEPT1</h1><p>KEPT2 {TEXT}</p></article>",
    "table of fees": f"<div class='sidebar-left'>NOISE<ul>{LINKS}</ul></div><div class='content'><h1>KEPT1</h1><table><caption>KEPT2"
    f"</caption><tr><td>KEPT3</td><td>45.00</td></tr></table><p>KEPT4 {TEXT * 2}</p></div>",
    "old tables": f"<table><tr><td><a href=/1>menu</a></td><td><h1>KEPT1</h1><p>KEPT2 {TEXT}</p></td></tr></table>",
    "dialog": f"<div role='dialog'>NOISE</div><div id='root'><h1>KEPT1</h1><p>KEPT2 {TEXT}</p></div>",
    "aside in the text": f"<main><h1>KEPT1</h1><p>{TEXT}</p><aside class='callout'>KEPT2</aside></main>",
    "notes below": f"<article><h1>KEPT1</h1><p>{TEXT}</p><footer class='footnotes'><p>KEPT2</p></footer></article>{FOOTER}",
    "menu of a restaurant": f"{NAV}<h1>KEPT1</h1><div class='menu'><h2>KEPT2</h2><p>KEPT3 soup 5 EUR</p></div><p>{TEXT}</p>",
    "names of sections": f"<h1>KEPT1</h1><div id='section-ad'>KEPT2</div><div class='related'>KEPT3</div><p>{TEXT * 3}</p>",
    "heading above the main part": f"<header><h1>KEPT1</h1><p>KEPT2</p></header><main><p>KEPT3 {TEXT}</p></main>",
    "page of links": "<h1>KEPT1</h1><ul>" + "".join(f"<li><a href=/{at}>KEPT{at}</a></li>" for at in range(2, 9)) + "</ul>",
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_the_text_is_kept_and_what_is_around_it_is_not(name: str) -> None:
    root, skipped = find_main_part(parse_html(f"<!doctype html><html><body>{PAGES[name]}".encode()))
    shown = render_blocks(HtmlReader(ParseLimits()).read(root, skipped))
    assert set(re.findall(r"KEPT\d", PAGES[name])) - set(re.findall(r"KEPT\d", shown)) == set()
    assert "NOISE" not in shown
