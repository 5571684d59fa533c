# HTML and XML.
from bs4 import BeautifulSoup
import lxml.etree as ET, lxml.html, xml.etree.ElementTree as E, xml.dom.minidom, html
s = BeautifulSoup('<html><body><a href="/x">é</a><p class="k">t<b>u</b></p></body></html>', 'lxml')
print(s.a['href'], s.find('p', class_='k').get_text(), s.prettify()[:20], BeautifulSoup('<p>x', 'html.parser'))
r = ET.fromstring('<r><i n="1">a</i><i n="2"/></r>'); print(r.xpath('//i/@n'), ET.tostring(r), lxml.html.fromstring('<p>h</p>').text)
print(E.fromstring('<a><b/></a>')[0].tag, xml.dom.minidom.parseString('<a/>').toprettyxml(), html.escape('<'))
ET.fromstring('<broken>')
